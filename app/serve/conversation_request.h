/*
 * conversation_request.h: the messages of a request become a prompt.
 *
 * Messages are given as OpenAI's API has them. Contents that are lists of parts become one text; parts that are
 * no text are refused by their name. What is left goes through the model's template, with tools and the
 * template's variables, and is read so that nobody's words become control tokens (chat_encoder.h).
 */
#ifndef APP_CONVERSATION_REQUEST_H
#define APP_CONVERSATION_REQUEST_H

#include "serve/server.h"

typedef struct conversation_request {
    json_t *messages;        /* array of {"role", "content", ...}, contents are texts */
    const json_t *tools;     /* NULL: none */
    const json_t *variables; /* NULL: none */
    bool asks;               /* end where the model has to answer */
} conversation_request;

/* Read "messages", "tools", "chat_template_kwargs" and "add_generation_prompt". What is wrong is in *f. */
cellar_status conversation_request_read(fields *f, conversation_request *out, cellar_error *error);
void conversation_request_free(conversation_request *c);

/*
 * The content of a message as one text: a text, or a list of {"type": "text", "text"}. What is wrong is in *f, under
 * `name`. NULL: that, or no memory.
 */
json_t *conversation_request_content(fields *f, const char *name, const json_t *content);

/* The text that the model reads, without marks: for people. *text is malloc'ed. */
cellar_status conversation_request_show(const server *s, const conversation_request *c, char **text,
                                        size_t *n, cellar_error *error);

/* The tokens that it reads, malloc'ed. *is_text_start: the answer begins behind a control token. */
cellar_status conversation_request_tokens(const server *s, const conversation_request *c,
                                          cellar_token **tokens, size_t *n, bool *is_text_start,
                                          cellar_error *error);

/*
 * The same as the prompt of a job; with the places where its last messages begin, if the server wants to be able to go
 * back there.
 */
cellar_status conversation_request_ask(const server *s, const conversation_request *c,
                                       job_request *asked, cellar_error *error);

/*
 * Where the last messages of a conversation of tokens [n] begin, the last of all first, at most `most`; how many
 * were found. A message whose beginning cannot be told, since the template writes it in another way when others follow, is left
 * out.
 */
uint32_t conversation_request_boundaries(const server *s, const conversation_request *c,
                                         const cellar_token *tokens, size_t n, size_t *places,
                                         uint32_t most);

#endif /* APP_CONVERSATION_REQUEST_H */
