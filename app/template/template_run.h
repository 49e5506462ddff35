/*
 * template_run.h: one rendering: what it has used, where it is, what went wrong.
 *
 * Everything that takes time goes through template_spend, everything that takes memory through
 * template_take, every nesting through template_enter and template_leave. Each returns false once a limit
 * is reached, with the error set; whoever sees false returns false. So a hostile template ends soon
 * and everywhere in the same way.
 */
#ifndef APP_TEMPLATE_RUN_H
#define APP_TEMPLATE_RUN_H

#include "cellar.h"
#include "template/chat_template.h"
#include "template/template_arena.h"
#include "template/template_syntax.h"
#include "template/template_value.h"

/* A variable of a scope. */
typedef struct template_variable {
    struct template_variable *next;
    template_text name;
    value item;
} template_variable;

/* What is visible: a scope's own variables hide those of the scopes around it. */
typedef struct template_scope {
    struct template_scope *outer; /* NULL: the outermost, with the caller's variables */
    template_variable *variables;
} template_scope;

struct template_macro {
    const template_node *node;
    template_scope *scope; /* where it was defined */
};

struct template_loop {
    const value_list *items;
    size_t at;
    bool has_last_values; /* changed() was asked before */
    value last_values;
};

/* The latest joined texts that have room behind them (template_arithmetic.c). */
enum { TEMPLATE_GROWING_TEXTS = 8 };

typedef struct template_growing_text {
    char *end; /* of the longest text that begins there */
    size_t room;
} template_growing_text;

struct template_run {
    const template_program *program;
    const chat_template_limits *limits;
    template_arena arena;
    char *output; /* malloc'ed */
    size_t output_length;
    size_t output_capacity;
    uint64_t steps; /* spent so far */
    uint32_t depth;
    uint32_t at; /* offset in the template of what is being done */
    int64_t now;
    template_scope *globals;
    template_growing_text growing[TEMPLATE_GROWING_TEXTS];
    size_t next_growing;
    cellar_status status; /* CELLAR_OK, or of the first failure */
    cellar_error *error;
};

#define TEMPLATE_TRY(call)                                                                         \
    do {                                                                                           \
        if (!(call)) return false;                                                                 \
    } while (0)

/* Always false. Sets the error, with line and column of what is being done. */
bool template_fail(template_run *run, cellar_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

bool template_spend(template_run *run, uint64_t steps);
/* Time for looking at or copying n bytes. */
bool template_spend_bytes(template_run *run, size_t n);
void *template_take(template_run *run, size_t size); /* NULL: failed */
bool template_enter(template_run *run);
void template_leave(template_run *run);

/* ---- template_run.c, template_evaluate.c ------------------------------------------------------- */

bool template_output(template_run *run, template_text text);
bool template_output_value(template_run *run, const value *v);
template_scope *template_scope_open(template_run *run, template_scope *outer); /* NULL: failed */
bool template_scope_set(template_run *run, template_scope *scope, template_text name, value item);
/* Assign to the names, namespace attributes or tuple that `target` is. */
bool template_assign(template_run *run, template_scope *scope, const template_node *target,
                     value item);

typedef enum template_flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } template_flow;

bool template_execute(template_run *run, template_scope *scope, const template_node *statements,
                      template_flow *flow);
/* Execute into a text instead of the output. */
bool template_capture(template_run *run, template_scope *scope, const template_node *statements,
                      template_text *text);
bool template_evaluate(template_run *run, template_scope *scope, const template_node *node,
                       value *out);
/* A NODE_CALL; `caller` is the macro that {% call %} hands over, or NULL. */
bool template_evaluate_call(template_run *run, template_scope *scope, const template_node *node,
                            const value *caller, value *out);

/* ---- calls ------------------------------------------------------------------------------------- */

enum { TEMPLATE_MOST_PARAMETERS = 6 };

typedef struct template_keyword {
    template_text name;
    value item;
} template_keyword;

typedef struct template_call {
    value self; /* what is filtered, tested or the method's own; VALUE_ABSENT for a function */
    const value *positional;
    size_t n_positional;
    const template_keyword *keywords;
    size_t n_keywords;
    value bound[TEMPLATE_MOST_PARAMETERS]; /* by parameter; VALUE_ABSENT where not given */
} template_call;

/*
 * A function, filter, test or method that is built in. `parameters` names them in order, separated by
 * blanks; one with a '?' behind it may be missing. NULL: it looks at the given arguments itself.
 */
struct template_builtin {
    const char *name;
    bool (*run)(template_run *run, const template_call *call, value *out);
    const char *parameters;
};

/* Bind the arguments to the parameters, and run. */
bool template_run_builtin(template_run *run, const template_builtin *builtin, template_call *call,
                          value *out);
/* `name` by its text in a table that ends with a NULL name; NULL: not there. */
const template_builtin *template_find_builtin(const template_builtin *table, template_text name);

const template_builtin *template_filter_find(template_text name);
const template_builtin *template_test_find(template_text name);
const template_builtin *template_function_find(template_text name);
/* A method of a value of this kind. */
const template_builtin *template_method_find(const value *self, template_text name);

/* `object.name` (attribute first, then key) and `object[key]` (key first); undefined if neither is there. */
bool template_attribute(template_run *run, const value *object, template_text name, value *out);
bool template_item(template_run *run, const value *object, const value *key, value *out);
bool template_slice(template_run *run, const value *object, const value bounds[3], value *out);
bool template_call_macro(template_run *run, const template_macro *macro, const template_call *call,
                         value *out);

/* template_arithmetic.c */
bool template_binary(template_run *run, template_operator op, const value *a, const value *b,
                     value *out);
bool template_negate(template_run *run, const value *a, value *out);
/* template_format.c: "%s and %d" % values, and "{} and {}".format(values). */
bool template_format_percent(template_run *run, template_text format, const value *values,
                             value *out);
bool template_format_braces(template_run *run, template_text format, const template_call *call,
                            value *out);
/* template_case.c */
typedef enum template_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_TITLE, /* a capital behind everything that is no letter: str.title() */
    CASE_WORDS, /* a capital behind blanks, brackets and dashes: the filter `title` */
    CASE_CAPITALIZED,
} template_case;
bool template_change_case(template_run *run, template_text text, template_case wanted,
                          template_text *out);
/* template_strings.c: Python's operations on texts, for filters and methods. */
typedef enum template_side { SIDE_LEFT = 1, SIDE_RIGHT = 2, SIDE_BOTH = 3 } template_side;
/* `characters`: a text of what goes, or NULL: white space. */
bool template_trim(template_run *run, template_text text, const template_text *characters,
                   template_side side, template_text *out);
/* At most `most` times; below 0: all. */
bool template_replace(template_run *run, template_text text, template_text old, template_text by,
                      int64_t most, template_text *out);
bool template_split_lines(template_run *run, template_text text, value *out);
/* An optional whole number. */
bool template_argument_integer(template_run *run, const value *given, int64_t otherwise,
                               int64_t *out);
bool template_argument_text(template_run *run, const value *given, template_text otherwise,
                            template_text *out);
extern const template_builtin template_text_methods[];

/* template_select.c: filters that run other filters or tests over the items of a list. */
bool template_filter_map(template_run *run, const template_call *call, value *out);
bool template_filter_select(template_run *run, const template_call *call, value *out);
bool template_filter_reject(template_run *run, const template_call *call, value *out);
bool template_filter_selectattr(template_run *run, const template_call *call, value *out);
bool template_filter_rejectattr(template_run *run, const template_call *call, value *out);
/* template_list_filters.c */
extern const template_builtin template_list_filters[];

/* template_order.c: sort in place; `attribute` is VALUE_ABSENT or where to look. */
typedef struct template_order {
    value attribute;
    bool reverse;
    bool case_sensitive;
} template_order;
bool template_sort(template_run *run, value_list *list, const template_order *order);
/* `a.b.0` of an object, as filters take it: a name with dots, or a number. */
bool template_attribute_path(template_run *run, const value *object, const value *path, value *out);
/* What a comparison looks at: small letters unless case counts. */
bool template_order_key(template_run *run, const value *item, const template_order *order,
                        value *key);

#endif /* APP_TEMPLATE_RUN_H */
