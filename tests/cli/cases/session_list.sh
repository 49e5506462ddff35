# The sessions of a folder; a damaged one is shown with what is wrong.
mkdir tales
cellar run -q -n 5 --temp 0 --seed 1 -p 'Once upon a time' --session tales/b --title "tale$(printf '\033')[31m" >text
cellar run -q -n 0 --temp 0 --seed 1 -p 'The house' --session tales/a >text
echo 'a letter' >tales/letter
mkfifo tales/pipe
ln -s b tales/link
mkdir tales/folder
cellar session list tales >text; echo "exit $?"
sed "s/20[0-9-]* [0-9:]*/DATE/" text
cellar session list --json tales | grep -E '"(file|tokens|text|problem)"'
head -c 1000 tales/b >"tales/c$(printf '\033')[2J"
cellar session list tales >text; echo "exit $?"
sed 's/20[0-9-]* [0-9:]*/DATE/' text
mkdir none
cd none || exit
cellar session list; echo "exit $?"
cellar session list --json; echo "exit $?"
cellar session list ../missing; echo "exit $?"
