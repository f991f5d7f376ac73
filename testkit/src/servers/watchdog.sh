# Runs one server, and ends it when the process that asked for it has gone.
#
#   watchdog.sh DIR COMMAND...
#
# Standard input takes one order a line: `start` runs COMMAND, a name of a signal is sent to it. The end
# of the input (the other process closed it, or died, however it died) kills the server and removes DIR,
# unless DIR holds a file named `keep`.
#
# Standard output tells what happened: `running PID`, `paused`, `resumed`, `exited STATUS`.

dir=$1
shift
exec 3<&0 </dev/null
# Who listens to the output may be dead, and there is work to do then.
trap '' PIPE

# Carries out the orders given while the server runs. The server stays a child of the main shell, which
# alone reaps it: its process id can belong to nobody else as long as this function runs.
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
