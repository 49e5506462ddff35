# A folder that cannot be written to is noticed before anything is read.
[ "$(id -u)" -ne 0 ] || { echo 'skip: root may write everywhere'; exit 77; }
mkdir folder
chmod 500 folder
cellar run -p 'One day' -n 5 --session folder/s
echo "exit $?"
chmod 700 folder
