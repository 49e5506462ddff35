/*
 * template_value.h: the values that a chat template computes with.
 *
 * They are Python's, as far as templates see them: undefined, None, booleans, whole numbers of 64 bits,
 * reals, texts of UTF-8, lists, tuples, dictionaries that keep their order, and things that can be
 * called. All belong to the arena of one rendering (texts also to the template or the caller) and are never
 * given back one by one. Texts do not change; lists grow only by append, dictionaries only while
 * they are made, namespaces by assignment.
 *
 * What can fail takes the template_run and returns false after having set its error.
 */
#ifndef APP_TEMPLATE_VALUE_H
#define APP_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct template_run template_run;
typedef struct template_builtin template_builtin;

typedef struct template_text {
    const char *data; /* not ended by NUL; never NULL, also if empty */
    size_t length;
} template_text;

/* A literal as a template_text. */
#define TEMPLATE_TEXT(literal) ((template_text){(literal), sizeof(literal) - 1})

typedef enum value_kind {
    VALUE_ABSENT, /* no value at all: an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOLEAN,
    VALUE_INTEGER,
    VALUE_REAL,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a global function, or a method with the value it belongs to */
} value_kind;

typedef struct value value;

typedef struct value_list {
    value *items;
    size_t n;
    size_t capacity;
} value_list;

typedef struct value_dict value_dict;

typedef struct template_method template_method;
typedef struct template_macro template_macro;
typedef struct template_loop template_loop;

struct value {
    value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        template_text text; /* VALUE_TEXT; of VALUE_UNDEFINED: what is missing, for messages */
        value_list *list;   /* also tuples */
        value_dict *dict;   /* also namespaces */
        template_loop *loop;
        const template_macro *macro;
        const template_method *method;
    };
};

typedef struct value_pair {
    value key;
    value item;
} value_pair;

struct value_dict {
    value_pair *pairs; /* in the order of their first assignment; no two keys are equal */
    size_t n;
    size_t capacity;
};

struct template_method {
    const template_builtin *builtin;
    value self; /* VALUE_ABSENT for a global function */
};

/* ---- making ---------------------------------------------------------------------------------- */

static inline value value_of_none(void)
{
    return (value){.kind = VALUE_NONE};
}

static inline value value_of_boolean(bool boolean)
{
    return (value){.kind = VALUE_BOOLEAN, .boolean = boolean};
}

static inline value value_of_integer(int64_t integer)
{
    return (value){.kind = VALUE_INTEGER, .integer = integer};
}

static inline value value_of_real(double real)
{
    return (value){.kind = VALUE_REAL, .real = real};
}

static inline value value_of_text(template_text text)
{
    return (value){.kind = VALUE_TEXT, .text = text};
}

static inline value value_of_undefined(template_text name)
{
    return (value){.kind = VALUE_UNDEFINED, .text = name};
}

/* An empty list (or tuple) with room for `capacity` items. */
bool value_make_list(template_run *run, value_kind kind, size_t capacity, value *out);
bool value_append(template_run *run, value_list *list, value item);

bool value_make_dict(template_run *run, value_kind kind, value *out);
/* The item of a key, or NULL. `key` may be of any kind. */
bool value_dict_find(template_run *run, const value_dict *dict, const value *key, value **item);
bool value_dict_set(template_run *run, value_dict *dict, value key, value item);
/* A new pair whose key is known not to be there. */
bool value_dict_add(template_run *run, value_dict *dict, value key, value item);

/* ---- asking ---------------------------------------------------------------------------------- */

static inline bool value_is_sequence(const value *v)
{
    return v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

static inline bool value_is_number(const value *v)
{
    return v->kind == VALUE_BOOLEAN || v->kind == VALUE_INTEGER || v->kind == VALUE_REAL;
}

/* Booleans count as 0 and 1. Only for numbers. */
double value_as_real(const value *v);
/* Booleans and whole numbers only. */
static inline int64_t value_as_integer(const value *v)
{
    return v->kind == VALUE_BOOLEAN ? v->boolean : v->integer;
}

static inline bool value_is_whole(const value *v)
{
    return v->kind == VALUE_BOOLEAN || v->kind == VALUE_INTEGER;
}

bool value_is_true(const value *v);
bool value_equal(template_run *run, const value *a, const value *b, bool *is_equal);
/* *order: below, equal to or above 0. It is an error to compare what has no order. */
bool value_compare(template_run *run, const value *a, const value *b, int *order);
bool value_contains(template_run *run, const value *container, const value *item, bool *found);

/* What a value is called in messages: "a text", "a list". */
const char *value_kind_name(const value *v);

/* All items of what can be walked over (of a text its characters, of a dictionary its keys), as a list
 * that may be the value's own: it must not be changed. */
bool value_items(template_run *run, const value *v, const value_list **items);

/* ---- texts ----------------------------------------------------------------------------------- */

bool template_text_equal(template_text a, template_text b);
/* The first place of `part` in text[from..), or SIZE_MAX. */
size_t template_text_find(template_text text, template_text part, size_t from);
size_t template_text_count(template_text text); /* characters */
/* Bytes of the first n characters; at most the length. */
size_t template_text_offset(template_text text, size_t n);

/* A text that grows in the arena of a run. */
typedef struct template_builder {
    template_run *run;
    char *data;
    size_t length;
    size_t capacity;
} template_builder;

bool template_builder_add(template_builder *builder, const char *data, size_t length);
bool template_builder_add_text(template_builder *builder, template_text text);
bool template_builder_add_character(template_builder *builder, char character);
bool template_builder_add_code(template_builder *builder, uint32_t code); /* as UTF-8 */
template_text template_builder_text(const template_builder *builder);

/* ---- written forms (template_print.c, template_json.c) ---------------------------------------- */

/* As Python's str() does it; undefined is nothing. */
bool value_print(template_builder *builder, const value *v);
/* The same as a text; a text is itself. */
bool value_to_text(template_run *run, const value *v, template_text *text);
/* As repr(). */
bool value_print_quoted(template_builder *builder, const value *v);
/* The shortest digits that read back as the same number, as Python writes it. */
void value_print_real(double real, char *to, size_t size);

typedef struct template_json_style {
    bool ascii;
    bool sorted;
    bool is_indented;
    template_text indent;         /* one level */
    template_text item_separator; /* ", " */
    template_text key_separator;  /* ": " */
} template_json_style;

/* As json.dumps() does it. */
bool value_print_json(template_builder *builder, const value *v, const template_json_style *style);

#endif /* APP_TEMPLATE_VALUE_H */
