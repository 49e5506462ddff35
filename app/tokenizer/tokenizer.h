/*
 * tokenizer.h: text to token ids and back.
 *
 * tokenizer_create reads the vocabulary of a GGUF file and picks the algorithm named by
 * tokenizer.ggml.model: "llama" is SentencePiece's BPE by scores (spm.h), "gpt2" byte-level BPE with
 * the pre-tokenizer named by tokenizer.ggml.pre (bpe.h, pre_tokenizer.h), "gemma4" BPE over
 * characters, "t5" SentencePiece's unigram model (unigram.h), "rwkv" the longest token (greedy.h).
 * An unknown name is refused, never guessed. Texts are normalised where the model was trained so:
 * unigram models by a table of their own, families of byte-level BPE by Unicode's form C
 * (normal_form.h). Special tokens are found in the text as it stands, before that; those of some
 * families take the white space beside them (swallowing.h). Every id it hands
 * out lies in [0, n_vocab). Immutable after creation: any number of threads may use it at once; a
 * text_stream belongs to one.
 */
#ifndef APP_TOKENIZER_H
#define APP_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"

typedef struct tokenizer tokenizer;

/*
 * Make a tokenizer from the metadata; `file` must outlive it. CELLAR_CORRUPT (naming key and
 * reason), CELLAR_UNSUPPORTED, CELLAR_NO_MEMORY.
 */
cellar_status tokenizer_create(const gguf_file *file, tokenizer **out, cellar_error *error);
void tokenizer_destroy(tokenizer *tok); /* NULL is allowed */

uint32_t tokenizer_size(const tokenizer *tok); /* n_vocab */
/* Special ids; -1 where the model has none. */
cellar_token tokenizer_bos(const tokenizer *tok);
cellar_token tokenizer_eos(const tokenizer *tok);
bool tokenizer_adds_bos(const tokenizer *tok); /* the model wants BOS before a text */
bool tokenizer_adds_space(
    const tokenizer *tok); /* a text is read with a space before it; see tokenizer_decode */
bool tokenizer_ends_text(const tokenizer *tok, cellar_token id); /* EOS, EOT and their like */

/* Is white space behind it, written in a text, a part of it and has no tokens? Likewise before it? */
bool tokenizer_swallows_after(const tokenizer *tok, cellar_token id);
bool tokenizer_swallows_before(const tokenizer *tok, cellar_token id);
/* The first place at or behind `from` in text[0..length) that is not such white space. */
size_t tokenizer_skip_space(const char *text, size_t length, size_t from);

/* How text is read. */
typedef struct tokenize_options {
    bool add_special;    /* put BOS (and EOS) where the model asks for it */
    bool parse_special;  /* recognise control tokens ("</s>") written in the text */
    bool continues_text; /* it follows ordinary text: no space is put before it */
    bool drops_space;    /* it follows a token of which tokenizer_swallows_after is true */
} tokenize_options;

/*
 * Encode `length` bytes of text, any bytes (what is not UTF-8 goes through byte tokens). *ids is
 * malloc'ed, the caller's to free; *n its length (0 with *ids NULL for nothing). CELLAR_INVALID:
 * longer than 2^30 bytes. CELLAR_NO_MEMORY.
 */
cellar_status tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                               tokenize_options options, cellar_token **ids, size_t *n,
                               cellar_error *error);

/*
 * The bytes of one token as they appear inside a text: spaces for U+2581, the byte of a byte
 * token, nothing for a control token unless show_special. Returns the length; writes at most
 * `capacity` bytes. id out of range: 0.
 */
size_t tokenizer_piece(const tokenizer *tok, cellar_token id, bool show_special, char *to,
                       size_t capacity);

/*
 * The bytes of a whole text: the pieces in a row, without the space that encoding put before the
 * text (and after each control token) where the model wants one. So decoding what was encoded
 * gives the same bytes, with these exceptions: what has neither token nor byte token is lost; where
 * U+2581 stands for a space it comes back as one; a text that the model wants normalised comes back
 * so; white space that special tokens swallowed does not come back.
 * *text is malloc'ed, the caller's to free; *length its bytes (0 with *text NULL for nothing). Ids
 * out of range are skipped. CELLAR_NO_MEMORY. Who streams pieces instead drops one leading space of
 * the first piece if tokenizer_adds_space.
 */
cellar_status tokenizer_decode(const tokenizer *tok, const cellar_token *ids, size_t n,
                               bool show_special, char **text, size_t *length, cellar_error *error);

/* ---- streaming bytes as valid UTF-8 --------------------------------------------------------- */

/*
 * Bytes come in token by token, perhaps cut inside a character; what goes out is always valid
 * UTF-8. Incomplete characters wait (up to 3 bytes); bytes that can never become one turn into
 * U+FFFD, one for each maximal invalid part (Unicode 15, section 3.9, "substitution of maximal
 * subparts").
 */
typedef struct utf8_stream {
    unsigned char waiting[4];
    uint32_t n_waiting;
} utf8_stream;

/* Feed n bytes; returns how many were written to `to`, which has room for 3 * (n + 3) bytes. */
size_t utf8_stream_push(utf8_stream *stream, const char *bytes, size_t n, char *to);
/* End: what still waits becomes U+FFFD. `to` has room for 12 bytes. */
size_t utf8_stream_finish(utf8_stream *stream, char *to);

#endif /* APP_TOKENIZER_H */
