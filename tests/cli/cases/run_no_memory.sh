# More cells than there can be memory for: said before anything is read, with what to do.
ulimit -v 4000000
cellar version >version 2>&1 || {
    echo "skip: this build needs more address space than the test allows"
    exit 77
}
cellar run -q -c 1073741824
