/*
 * template_expression.c: the parser's half for expressions.
 *
 * One function for each level, the loosest first, as Jinja2 orders them:
 *
 *     a if b else c  <  or  <  and  <  not  <  comparisons, in  <  + -  <  ~  <  * / // %  <  **
 *     <  - + (signs)  <  .name [key] (call) |filter  is test
 *
 * A sign binds tighter than ** and looser than .name, but filters and tests see the signed value. Chains of
 * one level are loops; only what nests recurs, and that is counted. NULL: failed, the error is set.
 */
#include <string.h>

#include "template/template_run.h"

static template_node *parse_or(template_compiler *compiler);
static template_node *parse_unary(template_compiler *compiler, bool with_filters);

/* ---- small helpers --------------------------------------------------------------------------- */

static bool is_operator(const template_compiler *compiler, const char *text)
{
    return template_token_is(template_peek(compiler, 0), LEX_OPERATOR, text);
}

static bool is_word(const template_compiler *compiler, const char *text)
{
    return template_token_is(template_peek(compiler, 0), LEX_NAME, text);
}

static template_node *new_pair(template_compiler *compiler, template_node_kind kind,
                               uint32_t offset, template_node *first, template_node *second)
{
    template_node *node = template_new_node(compiler, kind, offset);
    if (node == NULL || first == NULL || second == NULL) return NULL;
    node->first = first;
    node->second = second;
    return node;
}

/* ---- literals -------------------------------------------------------------------------------- */

/* Items up to the closing bracket, a comma between them; `parse` makes one. */
static template_node *parse_items(template_compiler *compiler, template_node_kind kind,
                                  uint32_t offset, const char *closing,
                                  template_node *(*parse)(template_compiler *))
{
    template_node *node = template_new_node(compiler, kind, offset);
    if (node == NULL) return NULL;
    template_node **end = &node->items;
    while (!template_take_token(compiler, LEX_OPERATOR, closing)) {
        if (node->items != NULL) {
            if (!template_expect(compiler, LEX_OPERATOR, ",")) return NULL;
            if (template_take_token(compiler, LEX_OPERATOR, closing)) break;
        }
        *end = parse(compiler);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    }
    return node;
}

static template_node *parse_dict_pair(template_compiler *compiler)
{
    const uint32_t offset = template_peek(compiler, 0)->offset;
    template_node *key = template_parse_expression(compiler);
    if (key == NULL || !template_expect(compiler, LEX_OPERATOR, ":")) return NULL;
    return new_pair(compiler, NODE_PAIR, offset, key, template_parse_expression(compiler));
}

static template_node *unexpected(template_compiler *compiler, const template_token *token)
{
    if (token->kind == LEX_PRINT_END || token->kind == LEX_TAG_END || token->kind == LEX_END)
        template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                             "the tag ends where a value must stand");
    else
        template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                             "'%.*s' stands where a value must stand", (int)token->text.length,
                             token->text.data);
    return NULL;
}

static template_node *parse_parentheses(template_compiler *compiler, uint32_t offset)
{
    if (template_take_token(compiler, LEX_OPERATOR, ")"))
        return template_new_node(compiler, NODE_TUPLE, offset);
    template_node *node = template_parse_tuple(compiler, TUPLE_ANY, NULL);
    if (node == NULL || !template_expect(compiler, LEX_OPERATOR, ")")) return NULL;
    return node;
}

static template_node *parse_primary(template_compiler *compiler)
{
    const template_token *token = template_next(compiler);
    switch (token->kind) {
    case LEX_NAME:
        return template_parse_name(compiler, token);
    case LEX_STRING:
        return template_parse_strings(compiler, token);
    case LEX_INTEGER:
        return template_new_constant(compiler, token->offset, value_of_integer(token->integer));
    case LEX_REAL:
        return template_new_constant(compiler, token->offset, value_of_real(token->real));
    default:
        break;
    }
    if (template_token_is(token, LEX_OPERATOR, "("))
        return parse_parentheses(compiler, token->offset);
    if (template_token_is(token, LEX_OPERATOR, "["))
        return parse_items(compiler, NODE_LIST, token->offset, "]", template_parse_expression);
    if (template_token_is(token, LEX_OPERATOR, "{"))
        return parse_items(compiler, NODE_DICT, token->offset, "}", parse_dict_pair);
    return unexpected(compiler, token);
}

static bool ends_tuple(const template_compiler *compiler, const char *end_word)
{
    const template_token *token = template_peek(compiler, 0);
    return token->kind == LEX_PRINT_END || token->kind == LEX_TAG_END ||
           template_token_is(token, LEX_OPERATOR, ")") ||
           (end_word != NULL && template_token_is(token, LEX_NAME, end_word));
}

static template_node *parse_target(template_compiler *compiler)
{
    template_node *node = parse_primary(compiler);
    while (node != NULL && template_take_token(compiler, LEX_OPERATOR, ".")) {
        const template_token *token = template_peek(compiler, 0);
        if (!template_expect(compiler, LEX_NAME, NULL)) return NULL;
        template_node *attribute = template_new_node(compiler, NODE_ATTRIBUTE, token->offset);
        if (attribute == NULL) return NULL;
        attribute->first = node;
        attribute->name = token->text;
        node = attribute;
    }
    return node;
}

static template_node *parse_tuple_item(template_compiler *compiler, template_tuple_rule rule)
{
    if (rule == TUPLE_NAMES_ONLY) return parse_target(compiler);
    return rule == TUPLE_NO_IF ? parse_or(compiler) : template_parse_expression(compiler);
}

template_node *template_parse_tuple(template_compiler *compiler, template_tuple_rule rule,
                                    const char *end_word)
{
    const uint32_t offset = template_peek(compiler, 0)->offset;
    template_node *first = parse_tuple_item(compiler, rule);
    if (first == NULL || !is_operator(compiler, ",")) return first;
    template_node *tuple = template_new_node(compiler, NODE_TUPLE, offset);
    if (tuple == NULL) return NULL;
    tuple->items = first;
    template_node **end = &first->next;
    while (template_take_token(compiler, LEX_OPERATOR, ",") && !ends_tuple(compiler, end_word)) {
        *end = parse_tuple_item(compiler, rule);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    }
    return tuple;
}

/* ---- what follows a value -------------------------------------------------------------------- */

static template_node *parse_argument(template_compiler *compiler, bool *is_keyword)
{
    const template_token *token = template_peek(compiler, 0);
    *is_keyword = token->kind == LEX_NAME &&
                  template_token_is(template_peek(compiler, 1), LEX_OPERATOR, "=");
    if (!*is_keyword) return template_parse_expression(compiler);
    template_next(compiler);
    template_next(compiler);
    template_node *node = template_new_node(compiler, NODE_KEYWORD, token->offset);
    if (node == NULL) return NULL;
    node->name = token->text;
    node->first = template_parse_expression(compiler);
    return node->first == NULL ? NULL : node;
}

bool template_parse_arguments(template_compiler *compiler, template_node **items)
{
    template_node **end = items;
    bool had_keyword = false;
    while (!template_take_token(compiler, LEX_OPERATOR, ")")) {
        if (*items != NULL) {
            if (!template_expect(compiler, LEX_OPERATOR, ",")) return false;
            if (template_take_token(compiler, LEX_OPERATOR, ")")) break;
        }
        const uint32_t offset = template_peek(compiler, 0)->offset;
        if (is_operator(compiler, "*") || is_operator(compiler, "**"))
            return template_syntax_fail(compiler, CELLAR_UNSUPPORTED, offset,
                                        "arguments by * or ** are not supported; name them");
        bool is_keyword;
        *end = parse_argument(compiler, &is_keyword);
        if (*end == NULL) return false;
        if (had_keyword && !is_keyword)
            return template_syntax_fail(compiler, CELLAR_CORRUPT, offset,
                                        "an argument without a name follows one with a name");
        had_keyword = is_keyword;
        end = &(*end)->next;
    }
    return true;
}

static template_node *parse_call(template_compiler *compiler, template_node *callee)
{
    template_node *node = template_new_node(compiler, NODE_CALL, template_next(compiler)->offset);
    if (node == NULL) return NULL;
    node->first = callee;
    return template_parse_arguments(compiler, &node->items) ? node : NULL;
}

/* A bound of a slice, None if it is left out. */
static template_node *parse_bound(template_compiler *compiler)
{
    if (is_operator(compiler, ":") || is_operator(compiler, "]"))
        return template_new_constant(compiler, template_peek(compiler, 0)->offset, value_of_none());
    return template_parse_expression(compiler);
}

static template_node *parse_brackets(template_compiler *compiler, template_node *object)
{
    const uint32_t offset = template_next(compiler)->offset;
    if (is_operator(compiler, "]")) {
        template_syntax_fail(compiler, CELLAR_CORRUPT, offset, "these brackets are empty");
        return NULL;
    }
    template_node *start = parse_bound(compiler);
    if (start == NULL) return NULL;
    if (template_take_token(compiler, LEX_OPERATOR, "]"))
        return new_pair(compiler, NODE_ITEM, offset, object, start);
    if (!template_expect(compiler, LEX_OPERATOR, ":")) return NULL;
    template_node *node = template_new_node(compiler, NODE_SLICE, offset);
    template_node *stop = parse_bound(compiler);
    if (node == NULL || stop == NULL) return NULL;
    template_take_token(compiler, LEX_OPERATOR, ":");
    template_node *step = parse_bound(compiler);
    if (step == NULL || !template_expect(compiler, LEX_OPERATOR, "]")) return NULL;
    node->first = object;
    node->items = start;
    start->next = stop;
    stop->next = step;
    return node;
}

static template_node *parse_dot(template_compiler *compiler, template_node *object)
{
    const uint32_t offset = template_next(compiler)->offset;
    const template_token *token = template_next(compiler);
    if (token->kind == LEX_INTEGER)
        return new_pair(compiler, NODE_ITEM, offset, object,
                        template_new_constant(compiler, offset, value_of_integer(token->integer)));
    if (token->kind != LEX_NAME) {
        template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                             "behind '.' a name or a number must stand");
        return NULL;
    }
    template_node *node = template_new_node(compiler, NODE_ATTRIBUTE, offset);
    if (node == NULL) return NULL;
    node->first = object;
    node->name = token->text;
    return node;
}

static template_node *parse_postfix(template_compiler *compiler, template_node *node)
{
    while (node != NULL) {
        if (is_operator(compiler, "."))
            node = parse_dot(compiler, node);
        else if (is_operator(compiler, "["))
            node = parse_brackets(compiler, node);
        else if (is_operator(compiler, "("))
            node = parse_call(compiler, node);
        else
            break;
    }
    return node;
}

template_node *template_parse_filters(template_compiler *compiler, template_node *first,
                                      bool begins_inside)
{
    while (begins_inside || template_take_token(compiler, LEX_OPERATOR, "|")) {
        begins_inside = false;
        const template_token *token = template_peek(compiler, 0);
        if (!template_expect(compiler, LEX_NAME, NULL)) return NULL;
        template_node *node = template_new_node(compiler, NODE_FILTER, token->offset);
        if (node == NULL) return NULL;
        node->first = first;
        node->name = token->text;
        node->builtin = template_filter_find(token->text);
        if (node->builtin == NULL) {
            template_syntax_fail(compiler, CELLAR_UNSUPPORTED, token->offset,
                                 "there is no filter '%.*s' here", (int)token->text.length,
                                 token->text.data);
            return NULL;
        }
        if (template_take_token(compiler, LEX_OPERATOR, "(") &&
            !template_parse_arguments(compiler, &node->items))
            return NULL;
        first = node;
    }
    return first;
}

/* Can an argument without parentheses begin here: `is divisibleby 3`? */
static bool begins_test_argument(const template_compiler *compiler)
{
    const template_token *token = template_peek(compiler, 0);
    if (token->kind == LEX_NAME)
        return !is_word(compiler, "else") && !is_word(compiler, "or") && !is_word(compiler, "and");
    return token->kind == LEX_STRING || token->kind == LEX_INTEGER || token->kind == LEX_REAL ||
           is_operator(compiler, "(") || is_operator(compiler, "[") || is_operator(compiler, "{");
}

static template_node *parse_test(template_compiler *compiler, template_node *subject)
{
    template_next(compiler);
    const bool is_negated = template_take_token(compiler, LEX_NAME, "not");
    const template_token *token = template_peek(compiler, 0);
    if (!template_expect(compiler, LEX_NAME, NULL)) return NULL;
    template_node *node = template_new_node(compiler, NODE_TEST, token->offset);
    if (node == NULL) return NULL;
    node->first = subject;
    node->name = token->text;
    node->builtin = template_test_find(token->text);
    if (node->builtin == NULL) {
        template_syntax_fail(compiler, CELLAR_UNSUPPORTED, token->offset,
                             "there is no test '%.*s' here", (int)token->text.length,
                             token->text.data);
        return NULL;
    }
    if (template_take_token(compiler, LEX_OPERATOR, "(")) {
        if (!template_parse_arguments(compiler, &node->items)) return NULL;
    } else if (begins_test_argument(compiler)) {
        if (is_word(compiler, "is")) {
            template_syntax_fail(compiler, CELLAR_CORRUPT, token->offset,
                                 "tests do not chain; join them with `and`");
            return NULL;
        }
        node->items = parse_postfix(compiler, parse_primary(compiler));
        if (node->items == NULL) return NULL;
    }
    if (!is_negated) return node;
    template_node *negated = template_new_node(compiler, NODE_NOT, token->offset);
    if (negated != NULL) negated->first = node;
    return negated;
}

static template_node *parse_filters_and_tests(template_compiler *compiler, template_node *node)
{
    while (node != NULL) {
        if (is_operator(compiler, "|"))
            node = template_parse_filters(compiler, node, false);
        else if (is_word(compiler, "is"))
            node = parse_test(compiler, node);
        else if (is_operator(compiler, "("))
            node = parse_call(compiler, node);
        else
            break;
    }
    return node;
}

/* ---- operators ------------------------------------------------------------------------------- */

static template_node *parse_sign(template_compiler *compiler, template_operator op)
{
    template_node *node = template_new_node(compiler, NODE_UNARY, template_next(compiler)->offset);
    if (node == NULL || !template_syntax_enter(compiler)) return NULL;
    node->op = op;
    node->first = parse_unary(compiler, false);
    compiler->depth--;
    return node->first == NULL ? NULL : node;
}

static template_node *parse_unary(template_compiler *compiler, bool with_filters)
{
    template_node *node = is_operator(compiler, "-")   ? parse_sign(compiler, OP_NEGATE)
                          : is_operator(compiler, "+") ? parse_sign(compiler, OP_PLUS)
                                                       : parse_primary(compiler);
    node = parse_postfix(compiler, node);
    return with_filters ? parse_filters_and_tests(compiler, node) : node;
}

/* The arithmetic operators of one level, ended by NULL. */
typedef struct operator_level {
    const char *text;
    template_operator op;
} operator_level;

static bool find_operator(const template_compiler *compiler, const operator_level *level,
                          template_operator *op)
{
    for (; level->text != NULL; level++) {
        if (is_operator(compiler, level->text)) {
            *op = level->op;
            return true;
        }
    }
    return false;
}

static template_node *parse_chain(template_compiler *compiler, const operator_level *level,
                                  template_node *(*parse)(template_compiler *))
{
    template_node *left = parse(compiler);
    template_operator op;
    while (left != NULL && find_operator(compiler, level, &op)) {
        const uint32_t offset = template_next(compiler)->offset;
        left = new_pair(compiler, NODE_BINARY, offset, left, parse(compiler));
        if (left != NULL) left->op = op;
    }
    return left;
}

static template_node *parse_operand(template_compiler *compiler)
{
    return parse_unary(compiler, true);
}

static template_node *parse_power(template_compiler *compiler)
{
    static const operator_level level[] = {{"**", OP_POWER}, {NULL, OP_POWER}};
    return parse_chain(compiler, level, parse_operand);
}

static template_node *parse_product(template_compiler *compiler)
{
    static const operator_level level[] = {{"*", OP_MULTIPLY},
                                           {"/", OP_DIVIDE},
                                           {"//", OP_FLOOR_DIVIDE},
                                           {"%", OP_MODULO},
                                           {NULL, OP_MODULO}};
    return parse_chain(compiler, level, parse_power);
}

static template_node *parse_concatenation(template_compiler *compiler)
{
    template_node *first = parse_product(compiler);
    if (first == NULL || !is_operator(compiler, "~")) return first;
    template_node *node = template_new_node(compiler, NODE_CONCATENATE,
                                            template_peek(compiler, 0)->offset);
    if (node == NULL) return NULL;
    node->items = first;
    template_node **end = &first->next;
    while (template_take_token(compiler, LEX_OPERATOR, "~")) {
        *end = parse_product(compiler);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    }
    return node;
}

static template_node *parse_sum(template_compiler *compiler)
{
    static const operator_level level[] = {{"+", OP_ADD}, {"-", OP_SUBTRACT}, {NULL, OP_SUBTRACT}};
    return parse_chain(compiler, level, parse_concatenation);
}

/* Take the comparison that stands here. */
static bool take_comparison(template_compiler *compiler, template_operator *op)
{
    static const operator_level level[] = {
        {"==", OP_EQUAL}, {"!=", OP_NOT_EQUAL}, {"<=", OP_LESS_EQUAL}, {">=", OP_GREATER_EQUAL},
        {"<", OP_LESS},   {">", OP_GREATER},    {NULL, OP_EQUAL}};
    if (find_operator(compiler, level, op)) {
        template_next(compiler);
        return true;
    }
    if (template_take_token(compiler, LEX_NAME, "in")) {
        *op = OP_IN;
        return true;
    }
    if (is_word(compiler, "not") && template_token_is(template_peek(compiler, 1), LEX_NAME, "in")) {
        template_next(compiler);
        template_next(compiler);
        *op = OP_NOT_IN;
        return true;
    }
    return false;
}

static template_node *parse_comparison(template_compiler *compiler)
{
    template_node *first = parse_sum(compiler), *node = NULL, **end = NULL;
    template_operator op;
    uint32_t offset = template_peek(compiler, 0)->offset;
    while (first != NULL && take_comparison(compiler, &op)) {
        if (node == NULL) {
            node = template_new_node(compiler, NODE_COMPARE, offset);
            if (node == NULL) return NULL;
            node->first = first;
            end = &node->items;
        }
        template_node *compared = template_new_node(compiler, NODE_COMPARED, offset);
        if (compared == NULL) return NULL;
        compared->op = op;
        compared->first = parse_sum(compiler);
        if (compared->first == NULL) return NULL;
        *end = compared;
        end = &compared->next;
        offset = template_peek(compiler, 0)->offset;
    }
    return node != NULL ? node : first;
}

static template_node *parse_not(template_compiler *compiler)
{
    if (!is_word(compiler, "not")) return parse_comparison(compiler);
    template_node *node = template_new_node(compiler, NODE_NOT, template_next(compiler)->offset);
    if (node == NULL || !template_syntax_enter(compiler)) return NULL;
    node->first = parse_not(compiler);
    compiler->depth--;
    return node->first == NULL ? NULL : node;
}

/* Operands that `word` joins. */
static template_node *parse_joined(template_compiler *compiler, const char *word,
                                   template_node_kind kind,
                                   template_node *(*parse)(template_compiler *))
{
    template_node *left = parse(compiler);
    while (left != NULL && is_word(compiler, word)) {
        const uint32_t offset = template_next(compiler)->offset;
        left = new_pair(compiler, kind, offset, left, parse(compiler));
    }
    return left;
}

static template_node *parse_and(template_compiler *compiler)
{
    return parse_joined(compiler, "and", NODE_AND, parse_not);
}

static template_node *parse_or(template_compiler *compiler)
{
    return parse_joined(compiler, "or", NODE_OR, parse_and);
}

static template_node *parse_conditional(template_compiler *compiler)
{
    template_node *chosen = parse_or(compiler);
    while (chosen != NULL && is_word(compiler, "if")) {
        template_node *node = template_new_node(compiler, NODE_CONDITIONAL,
                                                template_next(compiler)->offset);
        if (node == NULL) return NULL;
        node->items = chosen;
        chosen->next = parse_or(compiler);
        if (chosen->next == NULL) return NULL;
        if (template_take_token(compiler, LEX_NAME, "else")) {
            node->second = template_parse_expression(compiler);
            if (node->second == NULL) return NULL;
        }
        chosen = node;
    }
    return chosen;
}

template_node *template_parse_expression(template_compiler *compiler)
{
    if (!template_syntax_enter(compiler)) return NULL;
    template_node *node = parse_conditional(compiler);
    compiler->depth--;
    return node;
}
