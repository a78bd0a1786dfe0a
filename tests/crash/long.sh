#!/bin/sh
# Looks at a million crash states, more or less, and says after each half minute how far it is. JOBS: how many processes
# to use. STATES: how many states. TIDEMARK_CRASH_SEED: which; else any, which is printed with every finding.
#
#   long.sh BUILD
set -eu

build=$1
jobs=${JOBS:-$(nproc)}
states=${STATES:-1000000}
test=$build/tests/crash/crash_scenarios_test
scenarios=$("$test" --gtest_list_tests | grep -c '^  ')
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

: "${TIDEMARK_CRASH_SEED:=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"
# A scenario may have a few less than are asked for: scenarios_test.cc.
TIDEMARK_CRASH_STATES=$((states / scenarios * 108 / 100 + 1))
export TIDEMARK_CRASH_SEED TIDEMARK_CRASH_STATES
echo "$scenarios scenarios, $TIDEMARK_CRASH_STATES states of each, TIDEMARK_CRASH_SEED=$TIDEMARK_CRASH_SEED"

shard=0
while [ "$shard" -lt "$jobs" ]; do
  {
    failed=0
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard "$test" --gtest_brief=1 || failed=1
    echo "$failed" >"$logs/$shard.failed"
  } 2>&1 | tee "$logs/$shard.log" &
  shard=$((shard + 1))
done
wait

total=$(cat "$logs"/*.log | sed -n 's/^[A-Za-z]*: [0-9]* operations, \([0-9]*\) states.*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
echo "$total crash states were looked at, TIDEMARK_CRASH_SEED=$TIDEMARK_CRASH_SEED"
if [ "$total" -lt "$states" ]; then
  echo "long.sh: $states crash states were asked for" >&2
  exit 1
fi
[ "$(cat "$logs"/*.failed | sort -u)" = 0 ]
