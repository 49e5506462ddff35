# A reader that goes away ends the program without a message.
mkfifo pipe
{ cellar help; echo $? >code; } >pipe &
exec 3<pipe
exec 3<&-
wait
# Written before the reader left (0) or after (1); never by a signal (141).
case $(cat code) in 0 | 1) ;; *) cat code ;; esac
