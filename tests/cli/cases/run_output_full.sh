[ -c /dev/full ] || { echo 'skip: there is no /dev/full'; exit 77; }
cellar run -n 20 >/dev/full
