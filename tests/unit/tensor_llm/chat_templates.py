"""Chat templates of the shapes that the families have, in words of our own."""
# ruff: noqa: E501 -- a template reads best in long lines

LLAMA2 = """\
{%- if messages[0]['role'] == 'system' -%}
{%- set rest = messages[1:] -%}{%- set first = messages[0]['content'] -%}
{%- else -%}
{%- set rest = messages -%}{%- set first = false -%}
{%- endif -%}
{%- for message in rest -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('turns go user, assistant, user, assistant') -}}
{%- endif -%}
{%- if loop.index0 == 0 and first != false -%}
{%- set said = '<<SETUP>>\\n' + first + '\\n<</SETUP>>\\n\\n' + message['content'] -%}
{%- else -%}{%- set said = message['content'] -%}{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- bos_token + '[INST] ' + said.strip() + ' [/INST]' -}}
{%- elif message['role'] == 'assistant' -%}
{{- ' ' + said.strip() + ' ' + eos_token -}}
{%- endif -%}
{%- endfor -%}
"""

LLAMA3 = """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}{%- set date_string = "1 Jan 2025" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set setup = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set setup = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: shell\\n" }}{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- setup }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at once") }}{%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set setup = messages[0]["content"] %}{%- set turns = messages[1:] %}
{%- else %}{%- set turns = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set asked = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}{%- set ns.index = 0 %}
{%- for message in turns %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the setup, user and assistant take turns: user/assistant/user/…") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message["role"] == "user" %}
        {%- if setup is defined and message == asked[-1] and loop.last %}
            {{- "[INST] " + setup + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[INST]{"content": ' + message.content|string + "}[/INST]" }}
    {%- else %}{{- raise_exception("Who is " + message["role"] + "?") }}{%- endif %}
{%- endfor %}
"""

CHATML = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You help where you can.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

QWEN25 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>system\\nYou are kind.<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_said>\\n' }}{{- message.content }}{{- '\\n</tool_said>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

QWEN3 = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_question=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_said>') and message.content.endswith('</tool_said>')) %}
        {%- set ns.searching = false %}{%- set ns.last_question = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}{%- set thoughts = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_question and (loop.last or thoughts) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_said>\\n' ~ content ~ '\\n</tool_said>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

# what else is met: macros, joins, generation marks, loop controls, replacements
ODDS = """\
{%- macro turn(who, what) -%}
<|im_start|>{{ who }}
{{ what }}<|im_end|>{{ '\\n' }}
{%- endmacro -%}
{%- set names = {'user': 'Human', 'assistant': 'Bot', 'system': 'Setup', 'tool': 'Tool'} -%}
{%- set ns = namespace(parts=[], text='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- continue -%}{%- endif -%}
{% generation %}{{ turn(names[message.role], message.content | replace('\\r\\n', '\\n') | trim) }}{% endgeneration %}
{%- set ns.parts = ns.parts + [message.content.split('\\n')[0] | upper] -%}
{%- set ns.text = ns.text ~ "%s: %s;" % (message.role, message.content[:5]) -%}
{%- endfor -%}
{%- set block -%}{{ ns.parts | join(' / ') }}|{{ ns.text }}{%- endset -%}
{{- block -}}{{- messages | map(attribute='role') | join(',') -}}
{{- messages | rejectattr('role', 'equalto', 'system') | list | length -}}
{{- messages[-1] | tojson -}}{{- messages[-1].items() | list | length -}}
{%- filter lower -%}<|IM_END|>DONE{%- endfilter -%}
{{- ['<|im_end|>', 'x'] | first -}}{{- "a\\nb" | indent(2) -}}{{- 'the end' | title | capitalize -}}
{{- "{} and {}".format(messages[0].content, '<|im_start|>') -}}
{%- if add_generation_prompt -%}<|im_start|>Bot{{ '\\n' }}{%- endif -%}
"""

# template, the family of its tokenizer, its tokens
TEMPLATES = {
    "llama2": (LLAMA2, "llama2", "<s>", "</s>"),
    "llama3": (LLAMA3, "llama3", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": (MISTRAL, "mistral", "<s>", "</s>"),
    "smollm2": (CHATML, "smollm2", "<|im_start|>", "<|im_end|>"),
    "qwen25": (QWEN25, "qwen2", "", "<|im_end|>"),
    "qwen3": (QWEN3, "qwen2", "", "<|im_end|>"),
    "odds": (ODDS, "qwen2", "", "<|im_end|>"),
}
