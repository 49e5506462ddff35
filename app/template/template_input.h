/*
 * template_input.h: JSON as values of a template.
 *
 * The one place of the interpreter that knows jansson.
 */
#ifndef APP_TEMPLATE_INPUT_H
#define APP_TEMPLATE_INPUT_H

#include "template/template_run.h"

/* NULL is None. The texts of `json` must outlive the run. */
bool template_from_json(template_run *run, const json_t *json, value *out);

#endif /* APP_TEMPLATE_INPUT_H */
