# Ends the processes of a run that died without ending them. Standard input is a pipe that only the run writes to.
#
#   $1      the directory of the run, removed afterwards
#   input   "+ PID" after the start of a process, "- PID" after its end
#   end     the run has died: kill the processes that still run (their data is throw-away)
#
# A run that ends normally kills this script first, so the code below the loop does not run then.
pids=
while read -r what pid; do
    if [ "$what" = + ]; then
        pids="$pids $pid"
    else
        left=
        for other in $pids; do [ "$other" = "$pid" ] || left="$left $other"; done
        pids=$left
    fi
done

for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
rm -rf -- "$1"
