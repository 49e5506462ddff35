/*
 * chat_renderer.h: messages become the text that the model was trained to read.
 *
 * A model that has a template for conversations is given it (chat_template.h). One that has none, as
 * the built-in storyteller, is given the words one behind the other, with a space before a person's
 * words if they need one: a story that two are writing.
 *
 * What somebody said is marked before it is rendered (chat_encoder.h), so the text must be read by
 * chat_encoder_read. A template that refuses system messages gets their words at the beginning of
 * the first message of the user. The time that a template may ask for is fixed, because a text that
 * changes at midnight would have to be read again.
 */
#ifndef APP_CHAT_RENDERER_H
#define APP_CHAT_RENDERER_H

#include "chat/chat_encoder.h"
#include "template/chat_template.h"

typedef struct chat_renderer {
    const chat_encoder *encoder;
    const chat_template *compiled; /* NULL: the words alone */
    const json_t *tools;           /* NULL: none */
    const json_t *variables;       /* NULL: none */
    const char *bos, *eos;         /* as they are written out; NULL: the model has none */
    bool merges_system;
    int64_t now; /* seconds since 1970 */
} chat_renderer;

/*
 * Fill it in; the pointers must outlive it. CELLAR_NO_MEMORY.
 */
cellar_status chat_renderer_make(const chat_encoder *encoder, const chat_template *compiled,
                                 const char *bos, const char *eos, int64_t now, chat_renderer *out,
                                 cellar_error *error);

/*
 * messages: an array of {"role", "content", ...}. `asks`: end where the model has to answer. *text is
 * malloc'ed. As chat_template_render.
 */
cellar_status chat_renderer_render(const chat_renderer *renderer, const json_t *messages, bool asks,
                                   char **text, size_t *n, cellar_error *error);

#endif /* APP_CHAT_RENDERER_H */
