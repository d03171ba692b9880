#!/usr/bin/env bash
# tools/netlab as a user meets it.  netlab_test.sh NETLAB LINK    the tool, and the program of link.cpp
# Status 77, which ctest reports as skipped, where this machine can't have such a cluster.
set -euo pipefail
netlab=$1 link=$2

# Clusters of this process alone: others may run the same test.
one=test$$ two=test$$_two
failures=0

complain() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

same() {  # what, value, expected
  [[ $2 == "$3" ]] || complain "$1: '$2', not '$3'"
}

between() {  # what, value, lowest, highest
  (($2 >= $3 && $2 <= $4)) || complain "$1: $2 is not within $3 and $4"
}

# The command's status is in `status`, all that it said in `said`.
try() {
  status=0
  said=$("$@" 2>&1) || status=$?
}

left_over() { ip netns list | grep -c "^trireme-$one-\|^trireme-$two-" || true; }

temporary=$(mktemp -d)
clean_up() {
  "$netlab" down --name "$one" || true
  "$netlab" down --name "$two" || true
  rm -r "$temporary"
}

try "$netlab" up 3 100mbit --name "$one"
if ((status == 3)); then
  echo "skipped, as this machine can't have an emulated cluster: $said"
  rm -r "$temporary"
  exit 77
fi
trap clean_up EXIT
((status == 0)) || { complain "up: $said"; exit 1; }

# shellcheck disable=SC2016  # the ranks' shells are to see the variables
# Every rank is told who it is, and its input and output are its own.
try "$netlab" each --name "$one" --port 4321 bash -c 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"'
same 'status of each' "$status" 0
same 'what each says' "$(sort <<<"$said")" '[0] 0 of 3 at 10.77.0.1:4321
[1] 1 of 3 at 10.77.0.1:4321
[2] 2 of 3 at 10.77.0.1:4321'
same 'the input' "$(echo word | "$netlab" each --name "$one" cat)" '[0] word'

# A rank that fails ends the others, and gives its status.
begin=$SECONDS
try "$netlab" each --name "$one" bash -c '((RANK == 1)) && exit 7; sleep 100'
same 'status of a failure' "$status" 7
[[ $said == *'host 1 failed with status 7'* ]] || complain "a failure is not reported: $said"
between 'seconds until all have ended' $((SECONDS - begin)) 0 20
# What a rank had started is told to end too, but not waited for.
for ((i = 0; i < 100; ++i)); do
  [[ -z $(ip netns pids "trireme-$one-0") ]] && break
  sleep 0.05
done
same 'what still runs' "$(ip netns pids "trireme-$one-0")" ''

# A rate that MEASURE puts into `rate`: within the bounds once in a few tries, as a busy machine delays either end.
rate_between() {  # what, lowest, highest, measure...
  for ((tries = 0; tries < 5; ++tries)); do
    "${@:4}"
    ((rate >= $2 && rate <= $3)) && return
  done
  complain "$1: $rate is not within $2 and $3"
}

one_sender() {  # from, to
  "$netlab" run --name "$one" "$2" "$link" receive 5000 >"$temporary/rate" &
  try "$netlab" run --name "$one" "$1" "$link" send "10.77.0.$(($2 + 1))" 5000 5000000
  same "sending from $1 to $2 ($said)" "$status" 0
  wait $! || complain "host $2 received nothing"
  rate=$(<"$temporary/rate")
}

two_senders() {
  for port in 5001 5002; do
    "$netlab" run --name "$one" 0 "$link" receive "$port" >"$temporary/rate$port" &
  done
  "$netlab" run --name "$one" 1 "$link" send 10.77.0.1 5001 3000000 &
  "$netlab" run --name "$one" 2 "$link" send 10.77.0.1 5002 3000000 &
  wait
  rate=$(($(<"$temporary/rate5001") + $(<"$temporary/rate5002")))
}

# All pairs reach each other, at the rate of the link, whichever end limits it.
rate_between 'Mbit/s from 0 to 1' 40 120 one_sender 0 1
rate_between 'Mbit/s from 1 to 2' 40 120 one_sender 1 2
rate_between 'Mbit/s from 2 to 0' 40 120 one_sender 2 0
# Two senders share the way into one host.
rate_between 'Mbit/s of two senders to one host' 40 160 two_senders

# Another cluster, with the same addresses, is another world; a name is taken only once.
try "$netlab" up 2 1gbit --name "$two"
same "status of a second cluster ($said)" "$status" 0
try "$netlab" up 2 1gbit --name "$two"
same 'status of up when it is up' "$status" 1
try "$netlab" run --name "$two" 1 "$link" send 10.77.0.1 5003 1000 &
"$netlab" run --name "$two" 0 "$link" receive 5003 >"$temporary/rate"
wait

# Hosts do not share abstract sockets, as processes of one host do.
mkfifo "$temporary/input"
"$netlab" run --name "$one" 0 "$link" hold "$one" <"$temporary/input" >"$temporary/held" &
exec {input}>"$temporary/input"
until [[ -s $temporary/held ]]; do sleep 0.05; done
for host in 0 1; do
  try "$netlab" run --name "$one" "$host" "$link" see "$one"
  same "whether host $host sees the socket of host 0" "$status" "$host"
done
try "$netlab" run --name "$two" 0 "$link" see "$one"
same 'whether another cluster sees it' "$status" 1
exec {input}>&-
wait

# Wrong use is told apart, and changes nothing.
for words in 'up 0 1gbit' 'up 3 fast' 'up 3' 'up 2 1gbit --delay soon' 'run 9 true' 'each' 'sideways' 'down --name A-b'; do
  # shellcheck disable=SC2086  # several words
  try "$netlab" ${words%% *} --name "$one" ${words#"${words%% *}"}
  same "status of $words ($said)" "$status" 2
done
same 'namespaces' "$(left_over)" 7

# Down ends what still runs there, and may be called again.
"$netlab" run --name "$two" 1 sleep 1000 &
sleeper=$!
until [[ -n $(ip netns pids "trireme-$two-1") ]]; do sleep 0.05; done
for name in "$one" "$two" "$two"; do
  try "$netlab" down --name "$name"
  same "status of down ($said)" "$status" 0
done
wait "$sleeper" 2>/dev/null && complain 'a process has outlived its host'
same 'namespaces' "$(left_over)" 0
try "$netlab" run --name "$one" 0 true
same 'status of run without a cluster' "$status" 1

# A cluster that can't be finished leaves nothing: here because the tool that limits rates fails at the second host.
cat >"$temporary/tc" <<END
#!/usr/bin/env bash
[[ \$* == *port1* ]] && exit 1
exec $(command -v tc) "\$@"
END
chmod +x "$temporary/tc"
try env PATH="$temporary:$PATH" "$netlab" up 3 1gbit --name "$one"
same 'status of an up that fails midway' "$status" 1
same 'namespaces' "$(left_over)" 0

# A delay is there, or the kernel is blamed.
try "$netlab" up 2 1gbit --delay 30ms --name "$one"
if ((status == 0)); then
  begin=${EPOCHREALTIME/./}
  "$netlab" run --name "$one" 0 "$link" receive 5000 >/dev/null &
  "$netlab" run --name "$one" 1 "$link" send 10.77.0.1 5000 1
  wait
  between 'microseconds to connect with a delay' $((${EPOCHREALTIME/./} - begin)) 60000 10000000
else
  same "status of a delay ($said)" "$status" 3
  [[ $said == *netem* ]] || complain "a missing delay is not explained: $said"
  same 'namespaces' "$(left_over)" 0
fi

((failures == 0)) || exit 1
echo 'all as it should be'
