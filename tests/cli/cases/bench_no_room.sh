# More memory than the machine has is refused before it is asked for, and more than the disk has, too.
available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null)
[ "$available" ] && [ "$available" -lt 30000000 ] || { echo 'skip: a machine with too much memory, or none that is told'; exit 77; }
(ulimit -v 500000 && cellar version) >version 2>&1 || { echo 'skip: this build needs more address space than the test allows'; exit 77; }
rm version
{
    cellar bench machine --size 100000 -r 1
    echo $?
    cellar bench memory -c 16777216 -r 1
    echo $?
    cellar bench session --size 65536 -r 1
    echo $?
} 2>&1 | sed 's/[0-9]* MiB/# MiB/g'
# Limited from outside, the allocation itself fails.
(ulimit -v 250000 && cellar bench memory -r 1)
echo $?
(ulimit -v 500000 && cellar bench machine --size 300 -r 1)
echo $?
(ulimit -v 500000 && cellar bench session --size 128 -r 1 -t 1 --folder .)
echo $?
ls -A
