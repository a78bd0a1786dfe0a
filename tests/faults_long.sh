#!/usr/bin/env bash
# Runs every case of the tests that draw some in the suite: each fault of each call, each bit of a shard, each byte of
# journal and index. Those are all tests of the sources that call one of SweepFaults, OneOf and AllCasesAsked
# (drawn_cases.h).
#
#   faults_long.sh --targets     prints the names of the programs
#   faults_long.sh BUILD         runs them
#
# JOBS: how many tests at once. SEED: for what is random beside the cases; else any. Prints what each test has printed, and
# for how long it ran, when it ends. Ends with 1, and with a list, if a test failed.

set -euo pipefail
shopt -s inherit_errexit
tests=$(dirname "$(realpath "$0")")

mapfile -t sources < <(cd "$tests" && grep -rlE --include='*_test.cc' \
  '\b(SweepFaults|OneOf|AllCasesAsked)\(' . | cut -c 3- | sort)
mapfile -t folders < <(printf '%s\n' "${sources[@]}" | xargs -n 1 dirname | sort -u)
program_of() { echo "$(tr / _ <<<"$1")_tests"; }

if [[ $1 = --targets ]]; then
  for folder in "${folders[@]}"; do program_of "$folder"; done
  exit
fi

build=$(realpath "$1")
export TIDEMARK_ALL_CASES=1 TIDEMARK_SEED=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
export failed

# A line for each test of the sources: its program and its name.
list_tests() {
  local list
  list=$(mktemp)
  for folder in "${folders[@]}"; do
    local program
    program=$build/tests/$folder/$(program_of "$folder")
    "$program" --gtest_list_tests --gtest_output="json:$list" >/dev/null
    python3 - "$program" "$folder" "$list" "${sources[@]}" <<'PYTHON'
import json
import os
import sys

program, folder, path, *sources = sys.argv[1:]
missing = {source for source in sources if os.path.dirname(source) == folder}
of_folder = tuple("/tests/" + source for source in missing)
with open(path, encoding="utf-8") as file:
    suites = json.load(file)["testsuites"]
for suite in suites:
    for test in suite["testsuite"]:
        if test["file"].endswith(of_folder):
            print(program, f"{suite['name']}.{test['name']}")
            missing.discard(test["file"].split("/tests/")[-1])
if missing:
    sys.exit(f"faults_long.sh: {program} has no test of {sorted(missing)}")
PYTHON
  done
  rm -f "$list"
}

run_test() {
  local begin=$SECONDS output status=0
  output=$("$1" --gtest_brief=1 --gtest_filter="$2" 2>&1) || status=$?
  if [[ $status -ne 0 ]]; then echo "$2, which ended with $status" >>"$failed"; fi
  if [[ $status -eq 0 ]]; then output=$(grep -vE '^(Running main|\[)' <<<"$output" || true); fi
  printf '=== %s, %d s\n%s\n' "$2" $((SECONDS - begin)) "$output"
}
export -f run_test

begin=$SECONDS
list=$(list_tests)
echo "$(wc -l <<<"$list") tests of ${#sources[@]} files, SEED=$TIDEMARK_SEED"
xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c 'run_test "$@"' run_test <<<"$list"

echo "=== faults-long, $((SECONDS - begin)) s, SEED=$TIDEMARK_SEED"
if [[ -s $failed ]]; then
  sed 's/^/FAILED: /' "$failed" >&2
  exit 1
fi
echo "nothing was lost, and nothing was wrong"
