/*
 * builtin_model.S: the model that comes with the program, as bytes inside it.
 *
 * The assembler copies the file named by BUILTIN_MODEL (the Makefile passes models/storyteller.gguf) into
 * read-only data between two symbols. 64-byte alignment keeps the tensors inside as aligned as they are in
 * the file, so they are used in place like those of a mapped file. A missing file stops the build.
 */
#if defined(__APPLE__) || defined(_WIN32)
#error "builtin_model.S is written for ELF"
#endif

    .section .rodata
    .balign 64
    .globl builtin_model_begin
    .hidden builtin_model_begin
    .type builtin_model_begin, %object
builtin_model_begin:
    .incbin BUILTIN_MODEL
    .globl builtin_model_end
    .hidden builtin_model_end
    .type builtin_model_end, %object
builtin_model_end:
    .size builtin_model_begin, builtin_model_end - builtin_model_begin
    .byte 0

    .section .note.GNU-stack, "", %progbits
