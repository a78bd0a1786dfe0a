#!/usr/bin/env bash
# The long form of the tests in this folder: as root, since file systems are mounted and shut down.
#
#   crash_real.sh FOLDER     where the test programs are
#
# CUTS, FILL_STEP, KILLS and SEED of the environment ask for something else than the whole; see the tests. Ends with a
# summary, and with 1 if a test failed or could not run. Where only xfs is not to be had, that is said and is no failure.

set -euo pipefail
programs=$1

if [[ $EUID -ne 0 ]]; then
  echo "crash_real.sh: run it as root: it mounts file systems of its own, in a mount namespace that nobody else sees" >&2
  exit 1
fi
export TIDEMARK_CUTS=${CUTS:-200} TIDEMARK_FILL_STEP=${FILL_STEP:-1} TIDEMARK_KILLS=${KILLS:-1000}
[[ -z "${SEED:-}" ]] || export TIDEMARK_SEED=$SEED

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
failed=0
begin=$SECONDS
for name in power_cut full_disk kill_loop; do
  # Its output goes to the terminal as it comes, for a line that changes; the lines that are to be repeated it leaves here.
  TIDEMARK_SUMMARY=$results/summary "$programs/real_${name}_test" --gtest_brief=0 --gtest_print_time=1 \
    --gtest_output="json:$results/$name.json" || failed=1
  if python3 - "$results/$name.json" >>"$results/skipped" <<'PYTHON'
import json, sys
for suite in json.load(open(sys.argv[1]))["testsuites"]:
    for test in suite["testsuite"]:
        if test.get("result") == "SKIPPED":
            why = "; ".join(skip.get("message", "") for skip in test.get("skipped", []))
            print(f"SKIPPED {suite['name']}.{test['name']}: {' '.join(why.split())}")
PYTHON
  then :; else failed=1; fi
done

echo "=== crash-real, $((SECONDS - begin)) s"
cat "$results/summary" 2>/dev/null || true
cat "$results/skipped"
if grep -v -i xfs "$results/skipped" | grep -q SKIPPED; then
  echo "crash_real.sh: a test could not run" >&2
  failed=1
fi
[[ $failed -eq 0 ]] && echo "nothing was lost" || echo "FAILED: see above" >&2
exit $failed
