/*
 * template_literals.c: the parser's part for names and constants.
 *
 * true, false and none are constants in both spellings and cannot be assigned to; every other name is
 * looked up when the template runs. Text literals that stand in a row are one.
 */
#include <string.h>

#include "template/template_syntax.h"

template_node *template_new_constant(template_compiler *compiler, uint32_t offset, value constant)
{
    template_node *node = template_new_node(compiler, NODE_CONSTANT, offset);
    if (node != NULL) node->constant = constant;
    return node;
}

template_node *template_parse_name(template_compiler *compiler, const template_token *token)
{
    static const struct {
        const char *name;
        value constant;
    } constants[] = {
        {"true", {.kind = VALUE_BOOLEAN, .boolean = true}},
        {"True", {.kind = VALUE_BOOLEAN, .boolean = true}},
        {"false", {.kind = VALUE_BOOLEAN, .boolean = false}},
        {"False", {.kind = VALUE_BOOLEAN, .boolean = false}},
        {"none", {.kind = VALUE_NONE}},
        {"None", {.kind = VALUE_NONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (template_token_is(token, LEX_NAME, constants[i].name))
            return template_new_constant(compiler, token->offset, constants[i].constant);
    template_node *node = template_new_node(compiler, NODE_NAME, token->offset);
    if (node != NULL) node->name = token->text;
    return node;
}

template_node *template_parse_strings(template_compiler *compiler, const template_token *token)
{
    template_text text = token->text;
    while (template_peek(compiler, 0)->kind == LEX_STRING) {
        const template_text more = template_next(compiler)->text;
        char *joined = template_syntax_take(compiler, text.length + more.length);
        if (joined == NULL) return NULL;
        if (text.length > 0) memcpy(joined, text.data, text.length);
        if (more.length > 0) memcpy(joined + text.length, more.data, more.length);
        text = (template_text){joined, text.length + more.length};
    }
    return template_new_constant(compiler, token->offset, value_of_text(text));
}
