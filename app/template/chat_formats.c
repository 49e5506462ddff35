/*
 * chat_formats.c: the prompt formats that models are known by, as templates.
 *
 * The marks between turns are each model's own and must be exact; how they are written down here is ours.
 * A format begins with the BOS token where its model does. Where a format has no turn for the system, its
 * text goes before the user's first or last words, as the model's makers do it; where it has none for tools,
 * a tool turn is refused by name.
 */
#include "template/chat_formats.h"

#include <string.h>

/* Refuse what a format has no turn for; `role` is that of a message. */
#define OTHER_ROLES                                                                                \
    "{% else %}{{ raise_exception('this format has no turn for the role ' ~ role) }}"
/* For all messages, with their role, and their text without white space around it. */
#define EACH_MESSAGE                                                                               \
    "{% for message in messages %}{% set role = message.role %}"                                   \
    "{% set text = (message.content or '') | trim %}"
/* Take a system message off the front. */
#define SYSTEM_APART                                                                               \
    "{% if messages and messages[0].role == 'system' %}"                                           \
    "{% set system = messages[0].content | trim %}{% set messages = messages[1:] %}"               \
    "{% else %}{% set system = '' %}{% endif %}"

static const char chatml[] =
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}{{ '\\n' }}{{ message.content or '' }}<|im_end|>{{ '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}";

static const char command_r[] =
    "{{ bos_token }}" EACH_MESSAGE "{% if role == 'system' %}{% set mark = 'SYSTEM' %}"
    "{% elif role == 'user' %}{% set mark = 'USER' %}"
    "{% elif role == 'assistant' %}{% set mark = 'CHATBOT' %}" OTHER_ROLES "{% endif %}"
    "<|START_OF_TURN_TOKEN|><|{{ mark }}_TOKEN|>{{ text }}<|END_OF_TURN_TOKEN|>{% endfor %}"
    "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}";

static const char deepseek[] =
    "{{ bos_token }}{% for message in messages %}{% set role = message.role %}"
    "{% if role == 'system' %}{{ message.content }}{{ '\\n\\n' }}"
    "{% elif role == 'user' %}User: {{ message.content }}{{ '\\n\\n' }}"
    "{% elif role == 'assistant' %}Assistant: {{ message.content }}{{ eos_token }}" OTHER_ROLES
    "{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";

/* Version 3: the thoughts of earlier answers are not read again. */
static const char deepseek3[] =
    "{{ bos_token }}{% for message in messages %}{% set role = message.role %}"
    "{% if role == 'system' %}{{ message.content }}"
    "{% elif role == 'user' %}<｜User｜>{{ message.content }}"
    "{% elif role == 'assistant' %}"
    "<｜Assistant｜>{{ (message.content or '').split('</think>')[-1] }}"
    "<｜end▁of▁sentence｜>" OTHER_ROLES "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}";

static const char gemma[] =
    "{{ bos_token }}" SYSTEM_APART EACH_MESSAGE
    "{% if role == 'assistant' %}{% set role = 'model' %}"
    "{% elif role != 'user' %}{{ raise_exception('this format has no turn for the role ' ~ role) }}"
    "{% endif %}<start_of_turn>{{ role }}{{ '\\n' }}"
    "{% if loop.first and system %}{{ system }}{{ '\\n\\n' }}{% endif %}"
    "{{ text }}<end_of_turn>{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model{{ '\\n' }}{% endif %}";

static const char granite[] =
    "{% for message in messages %}"
    "<|start_of_role|>{{ 'tool_response' if message.role == 'tool' else message.role }}"
    "<|end_of_role|>{{ message.content or '' }}<|end_of_text|>{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}";

static const char llama2[] = SYSTEM_APART EACH_MESSAGE
    "{% if role == 'user' %}{{ bos_token }}[INST] "
    "{% if loop.first and system %}<<SYS>>{{ '\\n' ~ system ~ '\\n' }}<</SYS>>{{ '\\n\\n' }}"
    "{% endif %}{{ text }} [/INST]"
    "{% elif role == 'assistant' %} {{ text }} {{ eos_token }}" OTHER_ROLES "{% endif %}"
    "{% endfor %}";

static const char llama3[] =
    "{{ bos_token }}" EACH_MESSAGE
    "<|start_header_id|>{{ 'ipython' if role == 'tool' else role }}<|end_header_id|>"
    "{{ '\\n\\n' ~ text }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}"
    "{% endif %}";

/* Versions 1 to 3, with the blanks that their SentencePiece vocabularies want. */
static const char mistral[] =
    "{{ bos_token }}" SYSTEM_APART EACH_MESSAGE "{% if role == 'user' %}[INST] "
    "{% if system and loop.first %}{{ system ~ '\\n\\n' }}{% endif %}{{ text }}[/INST]"
    "{% elif role == 'assistant' %} {{ text }}{{ eos_token }}" OTHER_ROLES "{% endif %}"
    "{% endfor %}";

/* The Tekken vocabularies: no blanks, and the system's text goes before the user's last words. */
static const char mistral_nemo[] =
    "{{ bos_token }}" SYSTEM_APART EACH_MESSAGE "{% if role == 'user' %}[INST]"
    "{% if system and messages[loop.index:] | selectattr('role', 'equalto', 'user') | list == [] %}"
    "{{ system ~ '\\n\\n' }}{% endif %}{{ text }}[/INST]"
    "{% elif role == 'assistant' %}{{ text }}{{ eos_token }}" OTHER_ROLES "{% endif %}"
    "{% endfor %}";

static const char phi3[] =
    "{% for message in messages %}{% set role = message.role %}"
    "{% if role in ['system', 'user', 'assistant'] %}"
    "<|{{ role }}|>{{ '\\n' ~ message.content }}<|end|>{{ '\\n' }}" OTHER_ROLES "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}";

static const char phi4[] =
    "{% for message in messages %}{% set role = message.role %}"
    "{% if role in ['system', 'user', 'assistant'] %}"
    "<|im_start|>{{ role }}<|im_sep|>{{ message.content }}<|im_end|>" OTHER_ROLES "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}";

/* ChatML in which tools are declared and called by tags, and thoughts may be switched off. */
static const char qwen3[] = SYSTEM_APART
    "{% if system or tools %}<|im_start|>system{{ '\\n' ~ system }}"
    "{% if tools %}{{ '\\n\\n' if system }}# Tools{{ '\\n\\n' }}"
    "Functions that can be called, with their parameters:{{ '\\n' }}<tools>"
    "{% for tool in tools %}{{ '\\n' ~ (tool | tojson) }}{% endfor %}{{ '\\n' }}</tools>"
    "{{ '\\n\\n' }}A call is a JSON object with name and arguments:{{ '\\n' }}<tool_call>{{ '\\n' "
    "}}"
    "{\"name\": <function>, \"arguments\": <object>}{{ '\\n' }}</tool_call>{% endif %}"
    "<|im_end|>{{ '\\n' }}{% endif %}"
    "{% for message in messages %}{% set role = message.role %}"
    "{% set text = message.content or '' %}"
    "{% if role == 'tool' %}"
    "{% if loop.first or loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\\n' }}<tool_response>{{ '\\n' ~ text ~ '\\n' }}</tool_response>"
    "{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>{{ '\\n' }}{% endif %}"
    "{% else %}<|im_start|>{{ role ~ '\\n' }}"
    "{% if role == 'assistant' %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif "
    "%}"
    "{{ text }}{% for call in message.tool_calls or [] %}{% set call = call.function or call %}"
    "{{ '\\n' if text or not loop.first }}<tool_call>{{ '\\n' }}"
    "{\"name\": \"{{ call.name }}\", \"arguments\": "
    "{{ call.arguments if call.arguments is string else call.arguments | tojson }}}{{ '\\n' }}"
    "</tool_call>{% endfor %}<|im_end|>{{ '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>{{ '\\n\\n' }}</think>"
    "{{ '\\n\\n' }}{% endif %}{% endif %}";

static const char vicuna[] =
    "{{ bos_token }}{% for message in messages %}{% set role = message.role %}"
    "{% if role == 'system' %}{{ message.content ~ '\\n\\n' }}"
    "{% elif role == 'user' %}USER: {{ message.content ~ '\\n' }}"
    "{% elif role == 'assistant' %}ASSISTANT: {{ message.content }}{{ eos_token ~ '\\n' "
    "}}" OTHER_ROLES "{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}";

static const char zephyr[] =
    "{% for message in messages %}{% set role = message.role %}"
    "{% if role in ['system', 'user', 'assistant'] %}"
    "<|{{ role }}|>{{ '\\n' ~ message.content ~ (eos_token or '</s>') ~ '\\n' }}" OTHER_ROLES
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}";

static const chat_format formats[] = {
    {"chatml", chatml, "turns in <|im_start|> and <|im_end|>; Qwen 2, SmolLM, Yi and many others"},
    {"command-r", command_r, "Cohere's Command R and Aya"},
    {"deepseek", deepseek, "DeepSeek V2: User: and Assistant:"},
    {"deepseek3", deepseek3, "DeepSeek V3 and R1"},
    {"gemma", gemma, "Gemma 1 to 3; the system's text goes before the first user's"},
    {"granite", granite, "Granite 3"},
    {"llama2", llama2, "Llama 2: [INST] and <<SYS>>"},
    {"llama3", llama3, "Llama 3"},
    {"mistral", mistral, "Mistral and Mixtral with SentencePiece vocabularies"},
    {"mistral-nemo", mistral_nemo, "Mistral with Tekken vocabularies"},
    {"phi3", phi3, "Phi 3"},
    {"phi4", phi4, "Phi 4"},
    {"qwen3", qwen3, "Qwen 3: ChatML with tools and thinking"},
    {"vicuna", vicuna, "Vicuna: USER: and ASSISTANT:"},
    {"zephyr", zephyr, "Zephyr, StableLM 2, TinyLlama: turns in <|role|>"},
};

const chat_format *chat_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const chat_format *chat_format_list(size_t *n)
{
    *n = sizeof formats / sizeof formats[0];
    return formats;
}
