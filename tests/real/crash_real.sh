#!/usr/bin/env bash
# The long form of the tests in this folder: as root, since file systems are mounted and shut down.
#
#   crash_real.sh FOLDER     where the test programs are
#
# CUTS, FILLS, KILLS and SEED of the environment ask for something else than the whole; see the tests. Ends with a
# summary, and with 1 if a test failed or could not run. Where xfs is not to be had, that is said and is no failure.

set -euo pipefail
programs=$1

if [[ $EUID -ne 0 ]]; then
  echo "crash_real.sh: run it as root: it mounts file systems of its own, in a mount namespace that nobody else sees" >&2
  exit 1
fi
export TIDEMARK_CUTS=${CUTS:-200} TIDEMARK_FILLS=${FILLS:-300} TIDEMARK_KILLS=${KILLS:-1000}
[[ -z "${SEED:-}" ]] || export TIDEMARK_SEED=$SEED

TIDEMARK_SUMMARY=$(mktemp)
export TIDEMARK_SUMMARY
trap 'rm -f "$TIDEMARK_SUMMARY"' EXIT
failed=()
begin=$SECONDS
for name in power_cut full_disk kill_loop; do
  echo "=== real_${name}_test"
  "$programs/real_${name}_test" --gtest_brief=1 || failed+=("real_${name}_test")
done

echo "=== crash-real, $((SECONDS - begin)) s"
cat "$TIDEMARK_SUMMARY"
if grep '^SKIPPED' "$TIDEMARK_SUMMARY" | grep -qv '^SKIPPED xfs: '; then failed+=("what was skipped"); fi
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "nothing was lost, and nothing was wrong"
