# The interpreters of this machine, for scripts that test in several Pythons. To be sourced.

# Prints the paths of those of Python 3.MINOR in PATH, of Debian and of pyenv, for each MINOR of the arguments. Not each needs
# to run: pyenv has names in PATH for versions that it does not serve there.
interpreters() {
  for minor in "$@"; do
    command -v "python3.$minor" || true
    ls "/usr/bin/python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python3 2>/dev/null || true
  done
}

# Prints MAJOR.MINOR of an interpreter, or fails if it does not run.
version_of() {
  "$1" -c "import sys; print('%d.%d' % sys.version_info[:2])" 2>/dev/null
}
