# Runs a server, and kills it when the process that started this script has ended.
#
#   watchdog.sh DIR COMMAND...
#
# Standard input contains one order per line. `start` runs COMMAND; the name of a signal sends that
# signal to COMMAND. At the end of the input the script kills the server and removes DIR, unless DIR
# contains a file named `keep`. The input ends when the other process closes it or dies for any
# reason.
#
# Standard output reports each event: `running PID`, `paused`, `resumed`, `exited STATUS`.

dir=$1
shift
exec 3<&0 </dev/null
# The reader of the output may be dead. The script must clean up nevertheless, so it ignores
# SIGPIPE.
trap '' PIPE

# Executes the orders that arrive while the server runs. The server is a child of the main shell,
# and only the main shell reaps it. Therefore no other process can have the server's process id
# while this function runs.
obey() {
    while read -r signal <&3; do
        kill -s "$signal" "$server"
        case $signal in
        STOP) echo paused ;;
        CONT) echo resumed ;;
        esac
    done
    kill -s KILL "$server"
}

while read -r order <&3; do
    [ "$order" = start ] || continue
    "$@" 3<&- >>"$dir/server.log" 2>&1 &
    server=$!
    echo "running $server"
    obey &
    obeying=$!
    wait "$server"
    status=$?
    kill "$obeying"
    wait "$obeying"
    echo "exited $status"
done

[ -e "$dir/keep" ] || rm -rf "$dir"
