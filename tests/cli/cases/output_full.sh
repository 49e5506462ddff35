# A full disk is a failure, with its reason.
[ -c /dev/full ] || { echo 'skip: there is no /dev/full'; exit 77; }
cellar help >/dev/full
