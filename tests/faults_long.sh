#!/usr/bin/env bash
# Runs every case of the tests that draw some in the suite: each fault of each call, each bit of a shard, each byte of
# journal and index. Those are all tests of the sources that call one of SweepFaults, OneOf and AllCasesAsked
# (drawn_cases.h).
#
#   faults_long.sh --targets         prints the names of the programs
#   faults_long.sh --list BUILD      prints the tests; a test of the suite, so that this finds them all
#   faults_long.sh BUILD             runs them
#
# JOBS: how many tests at once. SEED: for what is random beside the cases; else any. Prints what each test has printed, and
# for how long it ran, when it ends. Ends with 1, and with a list, if a test failed.

set -euo pipefail
shopt -s inherit_errexit
tests=$(dirname "$(realpath "$0")")

mapfile -t sources < <(cd "$tests" && grep -rlE --include='*_test.cc' \
  '\b(SweepFaults|OneOf|AllCasesAsked)\(' . | cut -c 3- | sort)

# The program of a source, as a path below the folder of the tests: its own (tidemark_test), or that of the folder whose
# CMakeLists.txt names it.
program_of() {
  local folder name
  folder=$(dirname "$1")
  while [[ ! -f $tests/$folder/CMakeLists.txt ]]; do folder=$(dirname "$folder"); done
  name=${folder}_tests
  if grep -qF "tidemark_test(${1#"$folder/"} " "$tests/$folder/CMakeLists.txt"; then name=${1%.cc}; fi
  echo "$folder/$(tr / _ <<<"$name")"
}

programs=()
for source in "${sources[@]}"; do programs+=("$(program_of "$source")"); done

if [[ $1 = --targets ]]; then
  printf '%s\n' "${programs[@]##*/}" | sort -u
  exit
fi

only_list=
if [[ $1 = --list ]]; then only_list=1; shift; fi
build=$(realpath "$1")
export TIDEMARK_ALL_CASES=1 TIDEMARK_SEED=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
export failed

# A line for each test of the sources: its program and its name.
list_tests() {
  local list
  list=$(mktemp)
  for program in $(printf '%s\n' "${programs[@]}" | sort -u); do
    local own=()
    for i in "${!sources[@]}"; do
      if [[ ${programs[i]} = "$program" ]]; then own+=("${sources[i]}"); fi
    done
    "$build/tests/$program" --gtest_list_tests --gtest_output="json:$list" >/dev/null
    python3 - "$build/tests/$program" "$list" "${own[@]}" <<'PYTHON'
import json
import sys

program, path, *sources = sys.argv[1:]
missing = set(sources)
of_program = tuple("/tests/" + source for source in sources)
with open(path, encoding="utf-8") as file:
    suites = json.load(file)["testsuites"]
for suite in suites:
    for test in suite["testsuite"]:
        if test["file"].endswith(of_program):
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
if [[ -n $only_list ]]; then echo "$list"; exit; fi
echo "$(wc -l <<<"$list") tests of ${#sources[@]} files, SEED=$TIDEMARK_SEED"
xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c 'run_test "$@"' run_test <<<"$list"

echo "=== faults-long, $((SECONDS - begin)) s, SEED=$TIDEMARK_SEED"
if [[ -s $failed ]]; then
  sed 's/^/FAILED: /' "$failed" >&2
  exit 1
fi
echo "nothing was lost, and nothing was wrong"
