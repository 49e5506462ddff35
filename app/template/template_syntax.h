/*
 * template_syntax.h: a template as tokens and as a tree.
 *
 * The lexer cuts the text into tokens, with the white space rules already applied; the parser makes a
 * tree of them. Both live in the arena of the program and are never changed afterwards. A node knows its
 * offset in the text, from which messages compute line and column.
 */
#ifndef APP_TEMPLATE_SYNTAX_H
#define APP_TEMPLATE_SYNTAX_H

#include "cellar.h"
#include "template/chat_template.h"
#include "template/template_arena.h"
#include "template/template_value.h"

typedef enum template_token_kind {
    LEX_TEXT,        /* between the tags; `text` */
    LEX_PRINT_BEGIN, /* {{ */
    LEX_PRINT_END,
    LEX_TAG_BEGIN, /* {% */
    LEX_TAG_END,
    LEX_NAME,
    LEX_STRING, /* `text`, escapes resolved */
    LEX_INTEGER,
    LEX_REAL,
    LEX_OPERATOR, /* `text` is the operator */
    LEX_END,
} template_token_kind;

typedef struct template_token {
    template_token_kind kind;
    uint32_t offset;
    template_text text;
    union {
        int64_t integer;
        double real;
    };
} template_token;

typedef enum template_operator {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR_DIVIDE,
    OP_MODULO,
    OP_POWER,
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
    OP_NEGATE,
    OP_PLUS, /* the sign */
} template_operator;

/*
 * What the fields of a node hold, by kind; what is not named is NULL. Lists of nodes are linked by `next`.
 */
typedef enum template_node_kind {
    /* expressions */
    NODE_CONSTANT,    /* constant */
    NODE_NAME,        /* name */
    NODE_LIST,        /* items */
    NODE_TUPLE,       /* items */
    NODE_DICT,        /* items: NODE_PAIR */
    NODE_PAIR,        /* first: key, second: value */
    NODE_ATTRIBUTE,   /* first, name */
    NODE_ITEM,        /* first, second: the key */
    NODE_SLICE,       /* first, items: start, stop, step (NODE_CONSTANT None where left out) */
    NODE_CALL,        /* first, items: arguments, NODE_KEYWORD among them */
    NODE_KEYWORD,     /* name, first */
    NODE_FILTER,      /* first (NULL: what the block captured), builtin, items */
    NODE_TEST,        /* first, builtin, items */
    NODE_UNARY,       /* op, first */
    NODE_BINARY,      /* op, first, second */
    NODE_AND,         /* first, second */
    NODE_OR,          /* first, second */
    NODE_NOT,         /* first */
    NODE_COMPARE,     /* first, items: NODE_COMPARED */
    NODE_COMPARED,    /* op, first */
    NODE_CONDITIONAL, /* items: value, condition; second: otherwise, or NULL */
    NODE_CONCATENATE, /* items */
    /* statements */
    NODE_TEXT,         /* name: the text */
    NODE_PRINT,        /* first */
    NODE_IF,           /* items: NODE_BRANCH; otherwise */
    NODE_BRANCH,       /* first: condition, body */
    NODE_FOR,          /* first: target, second: over what, items: the filter; body, otherwise */
    NODE_SET,          /* first: target, second */
    NODE_SET_BLOCK,    /* first: target, second: filters or NULL, body */
    NODE_MACRO,        /* name, items: NODE_PARAMETER; body */
    NODE_PARAMETER,    /* name, first: default or NULL */
    NODE_CALL_BLOCK,   /* first: the call, second: the NODE_MACRO that is `caller` */
    NODE_FILTER_BLOCK, /* second: filters, body */
    NODE_SCOPE,        /* items: NODE_KEYWORD (the variables of `with`), body */
    NODE_DO,           /* first */
    NODE_BREAK,
    NODE_CONTINUE,
} template_node_kind;

typedef struct template_node template_node;
struct template_node {
    template_node_kind kind;
    template_operator op;
    uint32_t offset;
    template_text name;
    template_node *next; /* in the list it stands in */
    template_node *first;
    template_node *second;
    template_node *items;
    template_node *body;
    template_node *otherwise;
    const template_builtin *builtin;
    value constant;
};

typedef struct template_program {
    template_text source; /* line ends are \n, the last one is gone */
    template_arena arena;
    template_node *statements;
} template_program;

/* What lexer and parser share. */
typedef struct template_compiler {
    template_program *program;
    const chat_template_limits *limits;
    cellar_status status; /* CELLAR_OK, or of the first failure */
    cellar_error *error;
    template_token *tokens; /* ends with LEX_END */
    size_t n_tokens;
    size_t capacity;
    size_t at; /* the parser's token */
    uint32_t depth;
    uint32_t loops; /* around the place, within its macro: break and continue need one */
} template_compiler;

/* Always false: see template_fail. */
bool template_syntax_fail(template_compiler *compiler, cellar_status status, uint32_t offset,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
void *template_syntax_take(template_compiler *compiler, size_t size); /* NULL: failed */

/* Fill the tokens from the source. */
bool template_lex(template_compiler *compiler);
/* Bytes of white space at text[at], as a regular expression's \s has it; 0: none. */
size_t template_space_at(template_text text, size_t at);
/* A string literal without its quotes, escapes resolved (template_escapes.c). */
bool template_unescape(template_compiler *compiler, uint32_t offset, template_text raw,
                       template_text *out);
/* Make program->statements from the tokens. */
bool template_parse(template_compiler *compiler);

/* ---- between the two halves of the parser ------------------------------------------------------ */

template_node *template_new_node(template_compiler *compiler, template_node_kind kind,
                                 uint32_t offset); /* NULL: failed */
const template_token *template_peek(const template_compiler *compiler, size_t ahead);
const template_token *template_next(template_compiler *compiler);
bool template_token_is(const template_token *token, template_token_kind kind, const char *text);
bool template_take_token(template_compiler *compiler, template_token_kind kind, const char *text);
bool template_expect(template_compiler *compiler, template_token_kind kind, const char *text);
bool template_syntax_enter(template_compiler *compiler);

typedef enum template_tuple_rule {
    TUPLE_ANY,        /* full expressions */
    TUPLE_NO_IF,      /* without `a if b else c`: after `in` of a for */
    TUPLE_NAMES_ONLY, /* a target: names, attributes of names, and tuples of them */
} template_tuple_rule;

template_node *template_parse_expression(template_compiler *compiler);
template_node *template_new_constant(template_compiler *compiler, uint32_t offset, value constant);
/* `token` is the name, or the first of the text literals, and was taken already. */
template_node *template_parse_name(template_compiler *compiler, const template_token *token);
template_node *template_parse_strings(template_compiler *compiler, const template_token *token);
template_node *template_parse_tuple(template_compiler *compiler, template_tuple_rule rule,
                                    const char *end_word);
template_node *template_parse_filters(template_compiler *compiler, template_node *first,
                                      bool begins_inside);
/* Behind the opening parenthesis, up to and with the closing one. */
bool template_parse_arguments(template_compiler *compiler, template_node **items);

/* Line and column, from 1, of an offset. */
void template_place(template_text source, size_t offset, size_t *line, size_t *column);

#endif /* APP_TEMPLATE_SYNTAX_H */
