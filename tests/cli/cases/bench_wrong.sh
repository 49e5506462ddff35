# What cannot be measured is refused with the reason.
try() { cellar bench "$@"; echo $?; }
try
try speed
try model -d 1,x
try model -d 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16
try model -d ''
try model -p 0 -n 0
try model -s 2
try parallel -n 0
try parallel -s 1000 --prefix 16000000 --no-share
try model -m nowhere
try model -p 16 -n 4 -d 8 -c 8
try machine -t 0
try machine --size -1
try machine --size 99999999999999999999
try machine -r many
try machine --cpu fast
try machine extra
try memory -c 0
try memory -c 4095
try memory -c 16777217
try memory -s 0
try memory -s 1,2,3,4,5,6,7,8,9
try memory -s 1,,2
try memory -s 513
try memory -c 4096 -s 64
try memory --folder .
try session --size 0
try session --size 65537
try session -r 101
try session -m model
