# Runs a server, and kills it when the process that started this script has ended.
#
#   watchdog.sh DIR COMMAND...
#
# Standard input contains one order per line. The order `start` runs COMMAND, which is the server.
# The name of a signal sends this signal to the server. At the end of the input, the script kills
# the server and removes DIR, unless DIR contains a file named `keep`. The input ends when the
# process that started this script closes the input, or dies for any reason.
#
# Standard output reports each event: `running PID`, `paused`, `resumed`, `exited STATUS`.

dir=$1
shift
exec 3<&0 </dev/null
# If the process that reads the output is dead, a write causes SIGPIPE. The script ignores SIGPIPE,
# because it must still clean up.
trap '' PIPE

# Executes the orders that arrive while the server runs. The server is a child of the main shell,
# and only the main shell reaps the server. Therefore no other process can have the process id of
# the server while this function runs.
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
