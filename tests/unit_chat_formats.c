/*
 * unit_chat_formats.c: the known prompt formats, and what a template supports.
 *
 * The expected texts follow the prompt formats that the models' makers publish.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/chat_formats.h"
#include "template/chat_template.h"

static const char conversation[] =
    "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Q\"},"
    " {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"R\"}]";

static const struct {
    const char *name;
    const char *prompt;
} prompts[] = {
    {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
               "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
               "<|im_start|>assistant\n"},
    {"command-r", "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|>"
                  "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Q<|END_OF_TURN_TOKEN|>"
                  "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
                  "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>R<|END_OF_TURN_TOKEN|>"
                  "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
    {"deepseek", "<s>S\n\nUser: Q\n\nAssistant: A</s>User: R\n\nAssistant:"},
    {"deepseek3", "<s>S<｜User｜>Q<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>R<｜Assistant｜>"},
    {"gemma", "<s><start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
              "<start_of_turn>user\nR<end_of_turn>\n<start_of_turn>model\n"},
    {"granite", "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n"
                "<|start_of_role|>user<|end_of_role|>Q<|end_of_text|>\n"
                "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
                "<|start_of_role|>user<|end_of_role|>R<|end_of_text|>\n"
                "<|start_of_role|>assistant<|end_of_role|>"},
    {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nQ [/INST] A </s><s>[INST] R [/INST]"},
    {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"mistral", "<s>[INST] S\n\nQ[/INST] A</s>[INST] R[/INST]"},
    {"mistral-nemo", "<s>[INST]Q[/INST]A</s>[INST]S\n\nR[/INST]"},
    {"phi3", "<|system|>\nS<|end|>\n<|user|>\nQ<|end|>\n<|assistant|>\nA<|end|>\n"
             "<|user|>\nR<|end|>\n<|assistant|>\n"},
    {"phi4", "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>Q<|im_end|>"
             "<|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>R<|im_end|>"
             "<|im_start|>assistant<|im_sep|>"},
    {"qwen3", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
              "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
              "<|im_start|>assistant\n"},
    {"vicuna", "<s>S\n\nUSER: Q\nASSISTANT: A</s>\nUSER: R\nASSISTANT:"},
    {"zephyr", "<|system|>\nS</s>\n<|user|>\nQ</s>\n<|assistant|>\nA</s>\n<|user|>\nR</s>\n"
               "<|assistant|>\n"},
};

static chat_template *compile(const char *text)
{
    chat_template *compiled;
    cellar_error error = {0};
    if (chat_template_compile(text, strlen(text), NULL, &compiled, &error) != CELLAR_OK)
        fail_msg("%s", error.message);
    return compiled;
}

static chat_template *compile_format(const char *name)
{
    const chat_format *format = chat_format_find(name);
    if (format == NULL) fail_msg("there is no format %s", name);
    return compile(format->template_text);
}

static char *render(const chat_template *compiled, const char *messages, const char *variables,
                    cellar_error *error)
{
    json_t *m = json_loads(messages, 0, NULL);
    json_t *v = variables != NULL ? json_loads(variables, 0, NULL) : NULL;
    assert_non_null(m);
    const chat_template_input input = {.messages = m,
                                       .variables = v,
                                       .bos_token = "<s>",
                                       .eos_token = "</s>",
                                       .add_generation_prompt = true};
    char *text;
    size_t n;
    chat_template_render(compiled, &input, &text, &n, error);
    json_decref(m);
    json_decref(v);
    return text;
}

static void every_format_writes_its_prompt(void **state)
{
    (void)state;
    size_t n;
    chat_format_list(&n);
    assert_int_equal(n, sizeof prompts / sizeof prompts[0]);
    for (size_t i = 0; i < n; i++) {
        cellar_error error = {0};
        chat_template *compiled = compile_format(prompts[i].name);
        char *text = render(compiled, conversation, NULL, &error);
        if (text == NULL) fail_msg("%s: %s", prompts[i].name, error.message);
        if (strcmp(text, prompts[i].prompt) != 0)
            fail_msg("%s:\n%s\nexpected:\n%s", prompts[i].name, text, prompts[i].prompt);
        free(text);
        chat_template_destroy(compiled);
    }
}

static void formats_are_sorted_and_described(void **state)
{
    (void)state;
    size_t n;
    const chat_format *formats = chat_format_list(&n);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || strcmp(formats[i - 1].name, formats[i].name) < 0);
        assert_true(strlen(formats[i].description) > 0);
        assert_ptr_equal(chat_format_find(formats[i].name), &formats[i]);
    }
    assert_null(chat_format_find("chatml2"));
    assert_null(chat_format_find(""));
}

static void a_tool_turn_is_refused_where_there_is_none(void **state)
{
    (void)state;
    static const char *const without[] = {"command-r", "deepseek", "deepseek3",    "gemma",
                                          "llama2",    "mistral",  "mistral-nemo", "phi3",
                                          "phi4",      "vicuna",   "zephyr"};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        cellar_error error = {0};
        chat_template *compiled = compile_format(without[i]);
        assert_null(render(compiled,
                           "[{\"role\": \"user\", \"content\": \"Q\"},"
                           " {\"role\": \"tool\", \"content\": \"21\"}]",
                           NULL, &error));
        assert_int_equal(error.status, CELLAR_INVALID);
        assert_non_null(strstr(error.message, "no turn for the role tool"));
        chat_template_destroy(compiled);
    }
}

static void qwen_thinks_unless_told_not_to(void **state)
{
    (void)state;
    const char *question = "[{\"role\": \"user\", \"content\": \"Q\"}]";
    chat_template *compiled = compile_format("qwen3");
    char *text = render(compiled, question, "{\"enable_thinking\": false}", NULL);
    assert_string_equal(text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
                              "<think>\n\n</think>\n\n");
    free(text);
    text = render(compiled, question, "{\"enable_thinking\": true}", NULL);
    assert_string_equal(text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
    free(text);
    chat_template_destroy(compiled);
}

/* ---- what a template supports ---------------------------------------------------------------- */

static chat_template_features probe(const char *text)
{
    chat_template *compiled = compile(text);
    chat_template_features features;
    assert_int_equal(chat_template_probe(compiled, "<s>", "</s>", &features, NULL), CELLAR_OK);
    chat_template_destroy(compiled);
    return features;
}

static void a_probe_finds_what_is_supported(void **state)
{
    (void)state;
    chat_template_features f = probe(chat_format_find("qwen3")->template_text);
    assert_true(f.system && f.tools && f.tool_calls && f.tool_results && f.thinking_switch);
    assert_true(f.forgets_thinking && f.generation_prompt && !f.opens_thinking);
    f = probe(chat_format_find("chatml")->template_text);
    assert_true(f.system && f.tool_results && f.generation_prompt);
    assert_true(!f.tools && !f.tool_calls && !f.thinking_switch && !f.forgets_thinking);
    f = probe(chat_format_find("mistral")->template_text);
    assert_true(f.system && !f.tool_results && !f.generation_prompt);
}

static void a_probe_sees_refusals(void **state)
{
    (void)state;
    const chat_template_features f = probe(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}A:<think>\n{% endif %}");
    assert_true(!f.system && f.generation_prompt && f.opens_thinking);
}

static void a_probe_of_nonsense_finds_nothing(void **state)
{
    (void)state;
    const chat_template_features f = probe("{{ nothing.at.all }}");
    assert_true(!f.system && !f.tools && !f.tool_calls && !f.tool_results && !f.thinking_switch &&
                !f.opens_thinking && !f.forgets_thinking && !f.generation_prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_writes_its_prompt),
        cmocka_unit_test(formats_are_sorted_and_described),
        cmocka_unit_test(a_tool_turn_is_refused_where_there_is_none),
        cmocka_unit_test(qwen_thinks_unless_told_not_to),
        cmocka_unit_test(a_probe_finds_what_is_supported),
        cmocka_unit_test(a_probe_sees_refusals),
        cmocka_unit_test(a_probe_of_nonsense_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
