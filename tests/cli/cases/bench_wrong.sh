# What cannot be measured is refused with the reason.
cellar bench
echo $?
cellar bench speed
echo $?
cellar bench model -d 1,x
echo $?
cellar bench model -d 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16
echo $?
cellar bench model -p 0 -n 0
echo $?
cellar bench model -s 2
echo $?
cellar bench parallel -n 0
echo $?
cellar bench parallel -s 1000 --prefix 16000000 --no-share
echo $?
cellar bench model -m nowhere
echo $?
cellar bench model -p 16 -n 4 -d 8 -c 8
echo $?
