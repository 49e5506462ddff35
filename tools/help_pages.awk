# help_pages.awk: the manual page of a command from what `cellar help COMMAND` says.
#
#   cellar help run | awk -v name=run -v summary='...' -v version=0.1.0 -v date=YYYY-MM-DD -f tools/help_pages.awk
#
# Nothing is written here that the help does not say. What it understands is how helps are written: usage up to the
# first empty line; then paragraphs, headings (a line of its own over indented ones), entries ("  -n, --predict N
# text", gone on with further right) and examples, which stay as they are.

function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text ~ /^[.']/ ? "\\&" text : text
}
# Text: a hyphen inside a word stays one.
function prose(text) {
    gsub(/\\/, "\\e", text)
    gsub(/ -/, " \\-", text)
    gsub(/\(-/, "(\\-", text)
    sub(/^-/, "\\-", text)
    return text ~ /^[.']/ ? "\\&" text : text
}
# Left of the gap stands what is bold, its words in capitals slanted.
function print_term(text,    n, word, i, result) {
    n = split(text, word, " ")
    result = ""
    for (i = 1; i <= n; i++) {
        if (word[i] ~ /^[A-Z|]+,?$/) word[i] = "\\fI" tolower(word[i]) "\\fR"
        else if (word[i] != "in" && word[i] != "short") word[i] = "\\fB" escape(word[i]) "\\fR"
        result = result (i > 1 ? " " : "") word[i]
    }
    gsub(/,\\fR/, "\\fR,", result)
    print ".TP\n" result
}
function begin_paragraph() {
    if (mode == "example") print ".fi"
    if (mode != "begun") print ".PP"
    mode = "text"
}
{ line[NR] = $0 }
END {
    print ".\\\" Made of `cellar help " name "` by tools/help_pages.awk."
    print ".TH \"CELLAR\\-" toupper(name) "\" 1 " date " \"cellar " version "\" \"Cellar\""
    print ".SH NAME\ncellar\\-" name " \\- " summary "\n.SH SYNOPSIS\n.nf"
    for (i = 1; i <= NR && line[i] != ""; i++) {
        sub(/^ +/, "", line[i])
        print ".B " escape(line[i])
    }
    print ".fi\n.SH DESCRIPTION"
    mode = "begun"
    is_fresh = 0
    for (; i <= NR; i++) {
        text = line[i]
        if (text == "") {
            is_fresh = 1
        } else if (text !~ /^ / && line[i + 1] ~ /^ / && text !~ /[.:,;]$/ && text !~ /^\047/ && text !~ /^--/) {
            if (mode == "example") print ".fi"
            print ".SH \"" toupper(text) "\""
            mode = "begun"
            is_example = text ~ /^Example/
            if (is_example) print ".nf"
            if (is_example) mode = "example"
            is_fresh = 0
        } else if (is_example && text ~ /^ /) {
            if (is_fresh) print ""
            print escape(substr(text, 3))
            is_fresh = 0
        } else if (text ~ /^ ? ? ? ? ? ?[^ ]/ && text ~ /^ / && (match(substr(text, 7), /[^ ]   */) || text ~ /^ +(--?|\/)[a-z]/)) {
            match(text, /^ */)
            text = substr(text, RLENGTH + 1)
            at = match(text, /[^ ]   *[^ ]/)
            print_term(at ? substr(text, 1, at) : text)
            if (at) {
                text = substr(text, at + 1)
                sub(/^ */, "", text)
                print prose(text)
            }
            mode = "entry"
            is_fresh = 0
        } else {
            is_deep = text ~ /^          /
            if (is_fresh || mode == "entry" && !is_deep || mode == "example") begin_paragraph()
            is_fresh = 0
            if (mode == "begun") mode = "text"
            sub(/^ +/, "", text)
            print prose(text)
        }
    }
    if (mode == "example") print ".fi"
    print ".SH SEE ALSO\n.BR cellar (1)"
}
