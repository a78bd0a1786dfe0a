# A virtual environment with packages from PyPI, for scripts that test against them. To be sourced, by a script that has set
#
#   script    its own path, for messages
#   tests     what is skipped where the package index is out of reach
#   venv      where the environment is kept
#   base_python   optional: the Python that makes the environment

fail() {
  echo "$script: $1" >&2
  exit 1
}

# Arguments are passed to the module venv.
make_environment() {
  "${base_python:-python3}" -m venv "$@" "$venv" || fail "python3 cannot make a virtual environment (Debian: python3-venv)"
}

# Runs pip, and ends the script with 77 if, and only if, the package index is out of reach. pip speaks of a lost connection
# on the way even where it then succeeds or fails for another reason, and ends with "from versions: none" where it got no
# list of versions, so it takes both to tell.
lost="NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|ConnectionResetError|NameResolutionError"
install() {
  if "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" 2>"$venv/pip.log"; then return; fi
  cat "$venv/pip.log" >&2
  if grep '^ERROR: ' "$venv/pip.log" | grep -qE "$lost|from versions: none" && grep -qE "$lost" "$venv/pip.log"; then
    echo "SKIPPED: $tests: the package index is out of reach"
    exit 77
  fi
  fail "pip could not install $*"
}
