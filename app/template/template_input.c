/*
 * template_input.c: messages, tools and variables, from JSON to values.
 *
 * Texts are not copied: they are the caller's for as long as the rendering takes. Numbers keep their kind.
 */
#include <string.h>

#include "template/template_input.h"

static bool convert_object(template_run *run, const json_t *json, value *out)
{
    const char *key;
    json_t *item;
    TEMPLATE_TRY(value_make_dict(run, VALUE_DICT, out));
    json_object_foreach((json_t *)(uintptr_t)json, key, item)
    {
        value converted;
        TEMPLATE_TRY(template_from_json(run, item, &converted));
        const value name = value_of_text((template_text){key, strlen(key)});
        TEMPLATE_TRY(value_dict_add(run, out->dict, name, converted));
    }
    return true;
}

static bool convert_array(template_run *run, const json_t *json, value *out)
{
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, json_array_size(json), out));
    for (size_t i = 0; i < json_array_size(json); i++) {
        value converted;
        TEMPLATE_TRY(template_from_json(run, json_array_get(json, i), &converted));
        TEMPLATE_TRY(value_append(run, out->list, converted));
    }
    return true;
}

static bool convert_container(template_run *run, const json_t *json, value *out)
{
    TEMPLATE_TRY(template_enter(run));
    const bool is_good = json_is_object(json) ? convert_object(run, json, out)
                                              : convert_array(run, json, out);
    template_leave(run);
    return is_good;
}

bool template_from_json(template_run *run, const json_t *json, value *out)
{
    *out = value_of_none();
    if (json == NULL) return true;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return convert_container(run, json, out);
    case JSON_STRING:
        *out = value_of_text((template_text){json_string_value(json), json_string_length(json)});
        return true;
    case JSON_INTEGER:
        *out = value_of_integer(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = value_of_real(json_real_value(json));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = value_of_boolean(json_is_true(json));
        return true;
    default:
        return true;
    }
}
