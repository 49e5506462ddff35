/*
 * template_parser.c: the parser's half for statements, and what both halves use.
 *
 * A body is a list of statements up to a tag of its end. Known tags: if, for (without recursive), set, macro,
 * call, filter, with, do, break, continue, generation (whose body is rendered as if it were not there). All
 * others are refused by name, among them those that would read further templates.
 */
#include <string.h>

#include "template/template_syntax.h"

static template_node *parse_body(template_compiler *compiler, const char *ends);

/* ---- for both halves ------------------------------------------------------------------------- */

template_node *template_new_node(template_compiler *compiler, template_node_kind kind,
                                 uint32_t offset)
{
    template_node *node = template_syntax_take(compiler, sizeof *node);
    if (node == NULL) return NULL;
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->offset = offset;
    return node;
}

const template_token *template_peek(const template_compiler *compiler, size_t ahead)
{
    const size_t at = compiler->at + ahead, last = compiler->n_tokens - 1;
    return &compiler->tokens[at < last ? at : last];
}

const template_token *template_next(template_compiler *compiler)
{
    const template_token *token = template_peek(compiler, 0);
    if (token->kind != LEX_END) compiler->at++;
    return token;
}

bool template_token_is(const template_token *token, template_token_kind kind, const char *text)
{
    if (token->kind != kind) return false;
    if (text == NULL) return true;
    const size_t length = strlen(text);
    return token->text.length == length && memcmp(token->text.data, text, length) == 0;
}

bool template_take_token(template_compiler *compiler, template_token_kind kind, const char *text)
{
    if (!template_token_is(template_peek(compiler, 0), kind, text)) return false;
    template_next(compiler);
    return true;
}

bool template_expect(template_compiler *compiler, template_token_kind kind, const char *text)
{
    if (template_take_token(compiler, kind, text)) return true;
    const template_token *token = template_peek(compiler, 0);
    const char *wanted = kind == LEX_PRINT_END ? "}}" : kind == LEX_TAG_END ? "%}" : "a name";
    if (text != NULL) wanted = text;
    return template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                                "'%.*s' stands where %s must stand", (int)token->text.length,
                                token->text.length > 0 ? token->text.data : "", wanted);
}

bool template_syntax_enter(template_compiler *compiler)
{
    if (compiler->depth < compiler->limits->depth) {
        compiler->depth++;
        return true;
    }
    return template_syntax_fail(compiler, CELLAR_UNSUPPORTED, template_peek(compiler, 0)->offset,
                                "it nests deeper than %u levels",
                                (unsigned)compiler->limits->depth);
}

/* ---- targets and signatures ------------------------------------------------------------------ */

static bool check_target(template_compiler *compiler, const template_node *target)
{
    if (target->kind == NODE_NAME) return true;
    if (target->kind == NODE_ATTRIBUTE && target->first->kind == NODE_NAME) return true;
    if (target->kind != NODE_TUPLE)
        return template_syntax_fail(compiler, CELLAR_CORRUPT, target->offset,
                                    "nothing can be assigned to this; name a variable");
    for (const template_node *item = target->items; item != NULL; item = item->next)
        if (!check_target(compiler, item)) return false;
    return true;
}

static template_node *parse_target(template_compiler *compiler, const char *end_word)
{
    template_node *target = template_parse_tuple(compiler, TUPLE_NAMES_ONLY, end_word);
    return target != NULL && check_target(compiler, target) ? target : NULL;
}

/* Parameters behind the opening parenthesis, up to and with the closing one. */
static bool parse_signature(template_compiler *compiler, template_node *macro)
{
    template_node **end = &macro->items;
    bool had_default = false;
    while (!template_take_token(compiler, LEX_OPERATOR, ")")) {
        if (macro->items != NULL) {
            if (!template_expect(compiler, LEX_OPERATOR, ",")) return false;
            if (template_take_token(compiler, LEX_OPERATOR, ")")) break;
        }
        const template_token *token = template_peek(compiler, 0);
        if (!template_expect(compiler, LEX_NAME, NULL)) return false;
        template_node *parameter = template_new_node(compiler, NODE_PARAMETER, token->offset);
        if (parameter == NULL) return false;
        parameter->name = token->text;
        if (template_take_token(compiler, LEX_OPERATOR, "=")) {
            parameter->first = template_parse_expression(compiler);
            if (parameter->first == NULL) return false;
            had_default = true;
        } else if (had_default) {
            return template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                                        "a parameter without a default follows one with a default");
        }
        *end = parameter;
        end = &parameter->next;
    }
    return true;
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* The body of a statement whose tag ends here, and the tag of its end, which must be `end`. */
static bool parse_whole_body(template_compiler *compiler, template_node *node, const char *end)
{
    const uint32_t offset = node->offset;
    node->body = parse_body(compiler, end);
    if (compiler->status != CELLAR_OK) return false;
    if (template_take_token(compiler, LEX_NAME, end)) return true;
    return template_syntax_fail(compiler, CELLAR_CORRUPT, offset, "this has no {%% %s %%}", end);
}

static bool parse_if(template_compiler *compiler, template_node *node)
{
    template_node **end = &node->items;
    for (;;) {
        template_node *branch = template_new_node(compiler, NODE_BRANCH,
                                                  template_peek(compiler, 0)->offset);
        if (branch == NULL) return false;
        branch->first = template_parse_tuple(compiler, TUPLE_NO_IF, NULL);
        if (branch->first == NULL) return false;
        branch->body = parse_body(compiler, "elif else endif");
        if (compiler->status != CELLAR_OK) return false;
        *end = branch;
        end = &branch->next;
        if (template_take_token(compiler, LEX_NAME, "elif")) continue;
        if (template_take_token(compiler, LEX_NAME, "else"))
            node->otherwise = parse_body(compiler, "endif");
        if (compiler->status != CELLAR_OK) return false;
        if (template_take_token(compiler, LEX_NAME, "endif")) return true;
        return template_syntax_fail(compiler, CELLAR_CORRUPT, node->offset,
                                    "this has no {%% endif %%}");
    }
}

static bool parse_for(template_compiler *compiler, template_node *node)
{
    node->first = parse_target(compiler, "in");
    if (node->first == NULL || !template_expect(compiler, LEX_NAME, "in")) return false;
    node->second = template_parse_tuple(compiler, TUPLE_NO_IF, "recursive");
    if (node->second == NULL) return false;
    if (template_take_token(compiler, LEX_NAME, "if")) {
        node->items = template_parse_expression(compiler);
        if (node->items == NULL) return false;
    }
    const template_token *token = template_peek(compiler, 0);
    if (template_token_is(token, LEX_NAME, "recursive"))
        return template_syntax_fail(compiler, CELLAR_UNSUPPORTED, token->offset,
                                    "recursive loops are not supported; use a macro");
    compiler->loops++;
    node->body = parse_body(compiler, "else endfor");
    compiler->loops--;
    if (compiler->status != CELLAR_OK) return false;
    if (template_take_token(compiler, LEX_NAME, "else"))
        node->otherwise = parse_body(compiler, "endfor");
    if (compiler->status != CELLAR_OK) return false;
    if (template_take_token(compiler, LEX_NAME, "endfor")) return true;
    return template_syntax_fail(compiler, CELLAR_CORRUPT, node->offset,
                                "this has no {%% endfor %%}");
}

static bool parse_set(template_compiler *compiler, template_node *node)
{
    node->first = parse_target(compiler, NULL);
    if (node->first == NULL) return false;
    if (template_take_token(compiler, LEX_OPERATOR, "=")) {
        node->second = template_parse_tuple(compiler, TUPLE_ANY, NULL);
        return node->second != NULL;
    }
    node->kind = NODE_SET_BLOCK;
    node->second = template_parse_filters(compiler, NULL, false);
    if (compiler->status != CELLAR_OK) return false;
    return parse_whole_body(compiler, node, "endset");
}

/* A body that break and continue cannot leave. */
static bool parse_closed_body(template_compiler *compiler, template_node *node, const char *end)
{
    const uint32_t loops = compiler->loops;
    compiler->loops = 0;
    const bool is_good = parse_whole_body(compiler, node, end);
    compiler->loops = loops;
    return is_good;
}

static bool parse_macro(template_compiler *compiler, template_node *node)
{
    const template_token *token = template_peek(compiler, 0);
    if (!template_expect(compiler, LEX_NAME, NULL)) return false;
    node->name = token->text;
    return template_expect(compiler, LEX_OPERATOR, "(") && parse_signature(compiler, node) &&
           parse_closed_body(compiler, node, "endmacro");
}

static bool parse_call_block(template_compiler *compiler, template_node *node)
{
    template_node *caller = template_new_node(compiler, NODE_MACRO, node->offset);
    if (caller == NULL) return false;
    caller->name = TEMPLATE_TEXT("caller");
    node->second = caller;
    if (template_take_token(compiler, LEX_OPERATOR, "(") && !parse_signature(compiler, caller))
        return false;
    node->first = template_parse_expression(compiler);
    if (node->first == NULL) return false;
    if (node->first->kind != NODE_CALL)
        return template_syntax_fail(compiler, CELLAR_CORRUPT, node->offset,
                                    "{%% call %%} needs the call of a macro");
    return parse_closed_body(compiler, caller, "endcall");
}

static bool parse_with(template_compiler *compiler, template_node *node)
{
    template_node **end = &node->items;
    while (template_peek(compiler, 0)->kind == LEX_NAME) {
        const template_token *token = template_next(compiler);
        template_node *variable = template_new_node(compiler, NODE_KEYWORD, token->offset);
        if (variable == NULL || !template_expect(compiler, LEX_OPERATOR, "=")) return false;
        variable->name = token->text;
        variable->first = template_parse_expression(compiler);
        if (variable->first == NULL) return false;
        *end = variable;
        end = &variable->next;
        if (!template_take_token(compiler, LEX_OPERATOR, ",")) break;
    }
    return parse_whole_body(compiler, node, "endwith");
}

static bool parse_generation(template_compiler *compiler, template_node *node)
{
    return parse_whole_body(compiler, node, "endgeneration");
}

static bool parse_filter_block(template_compiler *compiler, template_node *node)
{
    node->second = template_parse_filters(compiler, NULL, true);
    return node->second != NULL && parse_whole_body(compiler, node, "endfilter");
}

static bool parse_do(template_compiler *compiler, template_node *node)
{
    node->first = template_parse_tuple(compiler, TUPLE_ANY, NULL);
    return node->first != NULL;
}

static bool parse_leave(template_compiler *compiler, template_node *node)
{
    if (compiler->loops > 0) return true;
    return template_syntax_fail(compiler, CELLAR_CORRUPT, node->offset,
                                "break and continue stand only in a loop");
}

static const struct {
    const char *name;
    template_node_kind kind;
    bool (*parse)(template_compiler *compiler, template_node *node);
} tags[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"call", NODE_CALL_BLOCK, parse_call_block},
    {"filter", NODE_FILTER_BLOCK, parse_filter_block},
    {"with", NODE_SCOPE, parse_with},
    {"generation", NODE_SCOPE, parse_generation},
    {"do", NODE_DO, parse_do},
    {"break", NODE_BREAK, parse_leave},
    {"continue", NODE_CONTINUE, parse_leave},
};

static template_node *parse_tag(template_compiler *compiler, const template_token *token)
{
    if (token->kind != LEX_NAME) {
        template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset, "a tag begins with its name");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!template_token_is(token, LEX_NAME, tags[i].name)) continue;
        template_node *node = template_new_node(compiler, tags[i].kind, token->offset);
        return node != NULL && tags[i].parse(compiler, node) ? node : NULL;
    }
    const bool is_end = token->text.length > 3 && memcmp(token->text.data, "end", 3) == 0;
    const bool is_else = template_token_is(token, LEX_NAME, "else") ||
                         template_token_is(token, LEX_NAME, "elif");
    if (is_end || is_else)
        template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                             "{%% %.*s %%} has nothing that it belongs to", (int)token->text.length,
                             token->text.data);
    else
        template_syntax_fail(compiler, CELLAR_UNSUPPORTED, token->offset,
                             "there is no tag '%.*s' here", (int)token->text.length,
                             token->text.data);
    return NULL;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static bool is_one_of(const template_token *token, const char *words)
{
    while (token->kind == LEX_NAME && *words != '\0') {
        const size_t length = strcspn(words, " ");
        if (token->text.length == length && memcmp(token->text.data, words, length) == 0)
            return true;
        words += length;
        words += strspn(words, " ");
    }
    return false;
}

static template_node *parse_print(template_compiler *compiler, uint32_t offset)
{
    template_node *node = template_new_node(compiler, NODE_PRINT, offset);
    if (node == NULL) return NULL;
    node->first = template_parse_tuple(compiler, TUPLE_ANY, NULL);
    if (node->first == NULL || !template_expect(compiler, LEX_PRINT_END, NULL)) return NULL;
    return node;
}

/* Statements up to the template's end, or to a tag of `ends`, whose name is then the next token. */
static template_node *parse_statements(template_compiler *compiler, const char *ends)
{
    template_node *statements = NULL, **end = &statements;
    for (;;) {
        const template_token *token = template_next(compiler);
        template_node *node = NULL;
        if (token->kind == LEX_END) return statements;
        if (token->kind == LEX_TEXT) {
            node = template_new_node(compiler, NODE_TEXT, token->offset);
            if (node != NULL) node->name = token->text;
        } else if (token->kind == LEX_PRINT_BEGIN) {
            node = parse_print(compiler, token->offset);
        } else {
            if (is_one_of(template_peek(compiler, 0), ends)) return statements;
            node = parse_tag(compiler, template_next(compiler));
            if (node != NULL && !template_expect(compiler, LEX_TAG_END, NULL)) node = NULL;
        }
        if (node == NULL) return NULL;
        *end = node;
        end = &node->next;
    }
}

static template_node *parse_body(template_compiler *compiler, const char *ends)
{
    template_take_token(compiler, LEX_OPERATOR, ":");
    if (!template_expect(compiler, LEX_TAG_END, NULL) || !template_syntax_enter(compiler))
        return NULL;
    template_node *statements = parse_statements(compiler, ends);
    compiler->depth--;
    return statements;
}

bool template_parse(template_compiler *compiler)
{
    compiler->program->statements = parse_statements(compiler, "");
    return compiler->status == CELLAR_OK;
}
