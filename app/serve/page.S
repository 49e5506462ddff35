/*
 * page.S: the page that the server shows at /, as bytes inside the program.
 *
 * The assembler copies each file of app/page/ into read-only data between two symbols; api_page.c sends them as they are.
 * There is no build step: what stands in app/page/ is what a browser gets. A missing file stops the build.
 */
#if defined(__APPLE__) || defined(_WIN32)
#error "page.S is written for ELF"
#endif

    .section .rodata

    .macro file name, path
    .globl \name\()_begin
    .hidden \name\()_begin
    .type \name\()_begin, %object
\name\()_begin:
    .incbin "\path"
    .globl \name\()_end
    .hidden \name\()_end
    .type \name\()_end, %object
\name\()_end:
    .byte 0
    .size \name\()_begin, \name\()_end - \name\()_begin
    .size \name\()_end, 1
    .endm

    file page_html, "app/page/page.html"
    file page_style, "app/page/page.css"
    file page_script, "app/page/page.js"
    file page_icon, "app/page/page.svg"

    .section .note.GNU-stack, "", %progbits
