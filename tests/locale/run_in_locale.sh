#!/usr/bin/env bash
# Runs a program under Pashto's locale, whose decimal point takes two bytes (U+066B). The locale is made in a temporary
# folder, so that none needs to be installed.
#
#   run_in_locale.sh SET_LOCALE PROGRAM [ARGUMENT...]
#
# SET_LOCALE: the library of set_locale.cc. Ends with 77 (SKIPPED) where localedef or its source of the locale is missing.

set -euo pipefail
set_locale=$1
shift
name=ps_AF.UTF-8

command -v localedef >/dev/null || { echo "there is no localedef"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [[ ! -e ${I18NPATH:-/usr/share/i18n}/locales/ps_AF ]]; then
  echo "there is no source of the locale ps_AF"
  exit 77
fi
# It ends with 1 where it has only warned.
localedef -i ps_AF -f UTF-8 "$folder/$name" || [[ -e $folder/$name/LC_NUMERIC ]]
LOCPATH=$folder LC_ALL=$name LD_PRELOAD=$set_locale "$@"
