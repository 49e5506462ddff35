# Write a small GGUF file, byte by byte, so that cases need no binary files. Sourced by cases.
#
#   make_gguf >small.gguf      version 3, five keys, one tensor of 2 rows of 32 numbers

# le BYTES VALUE: a number, least byte first.
le() {
    le_n=$1 le_value=$2
    while [ "$le_n" -gt 0 ]; do
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\$(printf '%03o' $((le_value % 256)))"
        le_value=$((le_value / 256)) le_n=$((le_n - 1))
    done
}

# text STRING: its length and its bytes.
text() {
    le 8 ${#1}
    printf '%s' "$1"
}

make_gguf() {
    printf GGUF
    le 4 3 # version
    le 8 1 # tensors
    le 8 5 # keys
    text general.architecture && le 4 8 && text llama
    text general.name && le 4 8 && text "a \"small\" one$(printf '\033')[31m"
    text general.alignment && le 4 4 && le 4 32
    text test.numbers && le 4 9 && le 4 5 && le 8 3 && le 4 7 && le 4 8 && le 4 9
    text test.switch && le 4 7 && le 1 1
    text token_embd.weight && le 4 2 && le 8 32 && le 8 2 && le 4 0 && le 8 0
    # What came before has 281 bytes; data starts at 288, the next multiple of 32.
    printf '%07d' 0 | tr 0 '\000'
    printf '%0256d' 0 | tr 0 '\000'
}
