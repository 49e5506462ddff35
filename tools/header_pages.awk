# header_pages.awk: manual pages of section 3 from the comments of include/cellar.h.
#
#   awk -v to=FOLDER -v version=0.1.0 -v date=YYYY-MM-DD -f tools/header_pages.awk include/cellar.h
#
# cellar(3) is the header's first comment and a table of all calls; every call, type and macro has a page with the
# comment that stands before it. Declarations with no empty line between them share a page; each other name is a page
# that leads there. Nothing is written here that the header does not say, so that they cannot come to differ. A name
# that would be written twice, and a call without a comment, are errors: the second ends with exit code 1.
#
# What it understands is how cellar.h is written: comments begin in the first column; behind a banner a section begins;
# a comment with an empty line behind it belongs to its section; indented lines are code, "  word   text" an entry.

function fail(what) {
    print FILENAME ":" FNR ": " what >"/dev/stderr"
    failures++
}

# ---- reading

# One banner, comment or declaration after the other becomes an entry of the page that is being collected.
function end_page() {
    if (n_here) n_pages++
    n_here = 0
}
function add_declaration(text, kind, name) {
    if (!n_here) {
        n_here = 1
        page_section[n_pages] = n_sections
        page_names[n_pages] = ""
    }
    page_names[n_pages] = page_names[n_pages] (page_names[n_pages] == "" ? "" : " ") name
    n = ++page_entries[n_pages]
    entry_text[n_pages, n] = text
    entry_kind[n_pages, n] = kind
    entry_comment[n_pages, n] = comment
    if (name in page_of) fail(name " is declared twice")
    page_of[name] = n_pages
    comment = ""
}

# The name that a declaration declares.
function name_of(text, kind,    part, n, word) {
    if (kind == "macro") {
        sub(/^#define +/, "", text)
        sub(/[^A-Za-z0-9_].*/, "", text)
        return text
    }
    if (kind == "call") {
        sub(/\(.*/, "", text)
    } else if (text ~ /\(\*[a-z_]+\)\(/) {
        match(text, /\(\*[a-z_]+\)/)
        return substr(text, RSTART + 2, RLENGTH - 3)
    } else {
        gsub(/\/\*.*\*\//, "", text)
        sub(/; *$/, "", text)
    }
    n = split(text, word, /[^A-Za-z0-9_]+/)
    while (n > 0 && word[n] == "") n--
    return word[n]
}

# The next line, which must be there.
function next_line() {
    if ((getline) <= 0) {
        fail("the header ends in the middle")
        exit 1
    }
}

function read_comment(    text) {
    text = $0
    sub(/^\/\* ?/, "", text)
    while (text !~ /\*\/ *$/) {
        next_line()
        line = $0
        if (line !~ /^ \*\//) sub(/^ \* ?/, "", line)
        text = text "\n" line
    }
    sub(/ *\*\/ *$/, "", text)
    sub(/^\n/, "", text)
    sub(/\n$/, "", text)
    return text
}

BEGIN {
    n_pages = n_sections = n_here = 0
    if (to == "") {
        print "header_pages.awk: -v to=FOLDER" >"/dev/stderr"
        failures = 1
        exit 1
    }
}

FNR == 1 { overview = read_comment(); next }

/^\/\* ---- / {
    end_page()
    comment = ""
    sub(/^\/\* ---- /, "")
    sub(/ -+ \*\/.*/, "")
    section[++n_sections] = $0
    next
}
!n_sections { next }
/^\/\*/ {
    if (comment != "") fail("a comment right behind a comment")
    comment = read_comment()
    next
}
/^$/ {
    if (comment != "") essay[n_sections] = essay[n_sections] (essay[n_sections] == "" ? "" : "\n\n") comment
    comment = ""
    end_page()
    next
}
/^#define/ {
    text = $0
    while (text ~ /\\$/) {
        next_line()
        text = text "\n" $0
    }
    add_declaration(text, "macro", name_of(text, "macro"))
    next
}
/^#/ || substr($0, 1, 1) == "}" { next }
/^CELLAR_API/ {
    text = $0
    while (text !~ /;/) {
        next_line()
        text = text " " $0
    }
    gsub(/ +/, " ", text)
    sub(/^CELLAR_API (CELLAR_MUST_USE )?/, "", text)
    gsub(/\( /, "(", text)
    name = name_of(text, "call")
    if (comment == "" && !n_here) fail(name " has no comment")
    add_declaration(text, "call", name)
    next
}
/^static inline/ {
    text = $0
    while (substr($0, 1, 1) != "}") next_line()
    sub(/^static inline /, "", text)
    name = name_of(text, "call")
    if (comment == "" && !n_here) fail(name " has no comment")
    add_declaration(text ";", "call", name)
    next
}
/^typedef/ {
    text = $0
    if (text ~ /\{/) {
        while (substr($0, 1, 1) != "}") {
            next_line()
            # The list behind an enum of X stands before it, under a name of its own.
            if ($0 !~ /^#/) text = text "\n" $0
        }
        name = $0
        gsub(/[} ;]/, "", name)
    } else {
        while ($0 !~ /;/) {
            next_line()
            text = text "\n" $0
        }
        name = name_of(text, "type")
    }
    add_declaration(text, "type", name)
    next
}
{ fail("not understood: " $0) }

# ---- writing

function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text
}
# Prose: a hyphen between letters stays one, and what has a page is bold.
function prose(text,    result, word, before) {
    result = ""
    gsub(/\\/, "\\e", text)
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(text, RSTART, RLENGTH)
        before = substr(text, 1, RSTART - 1)
        # A minus before a number, an option or a lone dash.
        gsub(/-/, "\\-", before)
        if (before == "\\-" && result != "" && substr(result, length(result)) != " ") before = "-"
        if (word in page_of) word = "\\fB" word "\\fR"
        else if (word ~ /^CELLAR_[A-Z0-9_]+$/) word = "\\fB" word "\\fR"
        result = result before word
        text = substr(text, RSTART + RLENGTH)
    }
    gsub(/-/, "\\-", text)
    return result text
}
# A line of text must not begin as a request does.
function guarded(text) {
    return text ~ /^[.']/ ? "\\&" text : text
}
function out(line) { print line >file }

# A comment: paragraphs, indented code, entries of "  word   text" and of "  - text".
function print_comment(text,    n, lines, i, line, mode, is_fresh, term) {
    n = split(text, lines, "\n")
    mode = "text"
    is_fresh = 1
    for (i = 1; i <= n; i++) {
        line = lines[i]
        if (line ~ /^ *$/) {
            if (mode == "code") out(".fi\n.RE")
            mode = "text"
            is_fresh = 1
            continue
        }
        if (mode != "entry" && line ~ /^    /) {
            if (mode != "code") {
                out(".RS 4\n.nf")
            }
            mode = "code"
            out(guarded(escape(substr(line, 5))))
            continue
        }
        if (mode == "code") {
            out(".fi\n.RE")
            mode = "text"
        }
        if (line ~ /^  - /) {
            out(".IP \\(bu 2")
            mode = "entry"
            line = substr(line, 5)
        } else if (match(line, /^  [A-Za-z][A-Za-z]* +/)) {
            term = substr(line, 3, RLENGTH - 2)
            line = substr(line, RLENGTH + 1)
            sub(/ +$/, "", term)
            out(".TP\n.B " term)
            mode = "entry"
        } else if (is_fresh && i > 1 || mode == "entry" && line !~ /^  /) {
            out(".PP")
            mode = "text"
        }
        sub(/^ +/, "", line)
        out(guarded(prose(line)))
        is_fresh = 0
    }
    if (mode == "code") out(".fi\n.RE")
}

# A prototype over as many lines as it needs.
function print_prototype(text,    n, part, i, line) {
    n = split(text, part, ", ")
    line = part[1]
    for (i = 2; i <= n; i++) {
        if (length(line) + length(part[i]) > 70) {
            out(".B \"" escape(line) ",\"")
            line = "    " part[i]
        } else {
            line = line ", " part[i]
        }
    }
    out(".B \"" escape(line) "\"")
}

# The first sentence, without what stands in parentheses or behind a colon when that is long.
function summary_of(p,    text) {
    text = entry_comment[p, 1]
    if (text == "") text = section[page_section[p]]
    sub(/\n\n.*/, "", text)
    sub(/\n    .*/, "", text)
    gsub(/\n */, " ", text)
    if (match(text, /[.] /)) text = substr(text, 1, RSTART - 1)
    if (length(text) > 100 && match(text, /[;:] /)) text = substr(text, 1, RSTART - 1)
    sub(/[.:]$/, "", text)
    gsub(/\\/, "\\e", text)
    return tolower(substr(text, 1, 1)) substr(text, 2)
}

function header_of(name) {
    file = to "/" name ".3"
    out(".\\\" Made of include/cellar.h by tools/header_pages.awk.")
    out(".TH \"" toupper(name) "\" 3 " date " \"cellar " version "\" \"Cellar\"")
}

function write_page(p,    names, n, i, list, first, e, kinds, seen, word, m, also) {
    n = split(page_names[p], names, " ")
    first = names[1]
    list = first
    for (i = 2; i <= n; i++) list = list ", " names[i]
    header_of(first)
    out(".SH NAME")
    out(list " \\- " summary_of(p))
    out(".SH SYNOPSIS\n.nf\n.B #include <cellar.h>\n.PP")
    also = ""
    kinds = ""
    for (e = 1; e <= page_entries[p]; e++) {
        kinds = kinds " " entry_kind[p, e]
        if (entry_kind[p, e] == "call") {
            print_prototype(entry_text[p, e])
        } else {
            m = split(entry_text[p, e], word, "\n")
            for (i = 1; i <= m; i++) {
                sub(/ +\\$/, " \\", word[i])
                out(guarded(escape(word[i])))
            }
        }
        m = split(entry_text[p, e], word, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= m; i++) {
            if ((word[i] in page_of) && page_of[word[i]] != p && !(word[i] in seen)) {
                seen[word[i]] = 1
                also = also ",\n.BR " word[i] " (3)"
            }
        }
    }
    out(".fi")
    for (e = i = 1; e <= page_entries[p]; e++) {
        if (entry_comment[p, e] == "") continue
        if (i) out(".SH DESCRIPTION")
        else out(".PP\n.BR " names[e] " ():")
        i = 0
        print_comment(entry_comment[p, e])
    }
    if (essay[page_section[p]] != "") {
        out((i ? ".SH DESCRIPTION" : ".PP") "\nWhat all calls of this part have in common stands in\n.BR cellar (3)\nunder \"" \
            section[page_section[p]] "\".")
    }
    if (kinds ~ /call/ && entry_text[p, 1] ~ /^cellar_status cellar/) {
        out(".SH RETURN VALUE\nCELLAR_OK, or what went wrong, which the last argument, if it is not NULL, then says in full;")
        out("nothing was changed then, unless the text above says otherwise.")
    }
    out(".SH SEE ALSO\n.BR cellar (3)" also)
    close(file)
    for (i = 2; i <= n; i++) {
        file = to "/" names[i] ".3"
        out(".so man3/" first ".3")
        close(file)
    }
}

function write_overview(    p, s, heading, n, lines, i, text, name, names) {
    header_of("cellar")
    out(".SH NAME\ncellar \\- the memory of a language model, as a library")
    out(".SH SYNOPSIS\n.nf\n.B #include <cellar.h>\n.PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs cellar)\n.fi\n.SH DESCRIPTION")
    # Headings are the lines that begin with two words in capitals, or are one.
    n = split(overview, lines, "\n")
    text = ""
    for (i = 2; i <= n; i++) {
        if (match(lines[i], /^[A-Z][A-Z][A-Z ]*/) && (RLENGTH == length(lines[i]) || RLENGTH > 8)) {
            heading = substr(lines[i], 1, RLENGTH)
            print_comment(text)
            out(".SH \"" heading "\"")
            text = substr(lines[i], length(heading) + 1)
            sub(/^[ ,]+/, "", text)
            if (text != "") text = toupper(substr(text, 1, 1)) substr(text, 2)
            continue
        }
        text = text == "" ? lines[i] : text "\n" lines[i]
    }
    print_comment(text)
    for (s = 1; s <= n_sections; s++) {
        out(".SH \"" toupper(section[s]) "\"")
        if (essay[s] != "") print_comment(essay[s])
        for (p = 0; p < n_pages; p++) {
            if (page_section[p] != s) continue
            split(page_names[p], names, " ")
            gsub(/ /, ", ", page_names[p])
            out(".TP\n.BR " names[1] " (3)" )
            out(prose(summary_of(p)))
            if (page_names[p] != names[1]) out("(" page_names[p] ")")
        }
    }
    out(".SH SEE ALSO\n.BR cellar (1)")
    close(file)
}

END {
    if (failures) exit 1
    end_page()
    for (p = 0; p < n_pages; p++) write_page(p)
    write_overview()
    if (failures) exit 1
}
