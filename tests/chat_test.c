/* chat_test.c - the chat format: rendering against the published template's output, forging,
 * refusals, parsing of answers. */
#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"
#include "text/chat.h"
#include "text_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat_bench { /* what one case needs */
    base_heap heap;
    base_arena arena;
    base_text text;
    beryl_error error;
} chat_bench;

static void bench_init(chat_bench *b) {
    *b = (chat_bench){0};
    base_heap_init(&b->heap, NULL);
    base_arena_init(&b->arena, &b->heap);
    base_text_init(&b->text, &b->heap);
}

static void bench_fini(test *t, chat_bench *b) {
    base_text_fini(&b->text);
    base_arena_fini(&b->arena);
    CHECK_INT(t, b->heap.bytes, 0);
}

static beryl_status render(chat_bench *b, const char *chat, text_chat_style style,
                           text_prompt *prompt) {
    base_json *json = NULL;
    beryl_status status = base_json_parse(&b->arena, chat, strlen(chat), &json, &b->error);
    if (!status) status = text_chat_render(&b->arena, json, style, prompt, &b->error);
    base_text_clear(&b->text);
    if (!status) text_prompt_write(prompt, &b->text);
    return status;
}

/* ---- fixtures -------------------------------------------------------------------------------- */

static bool mentions_literal(base_view text) {
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++)
        if (text.size && strstr(text.data, text_special_literal((text_special_name)i))) return true;
    return false;
}

/* Does any string of the conversation hold a literal? (Strings of base_json end with a NUL.) */
static bool holds_literal(const base_json *json) {
    if (json->kind == JSON_STRING && mentions_literal(json->text)) return true;
    for (const base_json *child = json->child; child; child = child->next)
        if (holds_literal(child)) return true;
    return false;
}

static void check_ids_joined(test *t, const text_make *m, const text_prompt *prompt,
                             const base_text *text) {
    text_ids pieces = {0}, whole = {0};
    CHECK_INT(t, text_prompt_encode(m->tok, prompt, &pieces, NULL), BERYL_OK);
    CHECK_INT(t, text_encode(m->tok, text->data, text->size, TEXT_ALL, &whole, NULL), BERYL_OK);
    CHECK(t, pieces.count == whole.count &&
                 !memcmp(pieces.data, whole.data, whole.count * sizeof *whole.data));
    text_ids_fini(m->tok, &pieces);
    text_ids_fini(m->tok, &whole);
}

/* The conversation of a fixture, which has a name and the prompt beside it. */
static const base_json *conversation_of(base_json *one) {
    for (base_json **p = &one->child; *p;) {
        if (base_view_equal((*p)->key, BASE_VIEW("name")) ||
            base_view_equal((*p)->key, BASE_VIEW("text")))
            *p = (*p)->next, one->n_child--;
        else p = &(*p)->next;
    }
    return one;
}

static void test_fixtures(test *t, const char *name, text_chat_style style) {
    chat_bench b;
    text_make m = {0};
    char *data = NULL, path[64];
    size_t size = 0, n = 0;
    base_json *cases = NULL;
    if (!test_case(t, "chat/published-template-%s", name)) return;
    bench_init(&b);
    snprintf(path, sizeof path, "chat/%s.json", name);
    if (base_file_read(&b.heap, test_data(t, path), 1 << 24, &data, &size, &b.error) ||
        base_json_parse(&b.arena, data, size, &cases, &b.error))
        test_fail(t, __FILE__, __LINE__, "%s", b.error.message);
    if (!text_make_tiny(t, &m)) cases = NULL;
    for (base_json *one = cases ? cases->child : NULL; one; one = one->next, n++) {
        text_prompt prompt;
        base_view want = base_json_find(one, "text")->text,
                  label = base_json_find(one, "name")->text;
        const base_json *messages = base_json_find(one, "messages");
        if (text_chat_render(&b.arena, conversation_of(one), style, &prompt, &b.error))
            test_fail(t, __FILE__, __LINE__, "%.*s: %s", (int)label.size, label.data,
                      b.error.message);
        base_text_clear(&b.text);
        text_prompt_write(&prompt, &b.text);
        if (!base_view_equal((base_view){b.text.data, b.text.size}, want))
            test_fail(t, __FILE__, __LINE__, "%.*s is\n%s\nnot\n%s", (int)label.size, label.data,
                      b.text.data, want.data);
        CHECK_INT(t, prompt.size, want.size);
        CHECK_INT(t, prompt.in_thought, base_view_ends(want, BASE_VIEW("<|channel>thought\n")));
        if (!holds_literal(messages)) check_ids_joined(t, &m, &prompt, &b.text);
    }
    CHECK_INT(t, n, 62);
    base_heap_give(&b.heap, data, size + 1);
    text_make_close(&m);
    bench_fini(t, &b);
}

/* ---- nobody forges a token ------------------------------------------------------------------- */

/* A conversation with `%` in every place that somebody else writes. */
static const char everywhere[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"%\"}]},{"
    "\"role\":\"user\",\"content\":\"a%b\"},"
    "{\"role\":\"%x\",\"content\":\"%\"},{\"role\":\"assistant\",\"reasoning\":\"%\",\"content\":"
    "\"%?\",\"tool_calls\":[{\"id\":\"1\",\"function\":"
    "{\"name\":\"%\",\"arguments\":{\"%\":\"%\",\"l\":[\"%\",{\"%\":\"%\"}]}}},{\"id\":\"2\","
    "\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"%q\\\":\\\"%q\\\"}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"%\"},{\"role\":\"tool\",\"name\":\"%"
    "\",\"content\":{\"%\":\"%\"}},"
    "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":[{\"type\":\"text\",\"text\":\"%\"},{"
    "\"type\":\"image\"}]},"
    "{\"role\":\"assistant\",\"content\":\"ok\",\"tool_responses\":[{\"name\":\"%\",\"response\":"
    "\"%\"}]}],"
    "\"tools\":[{\"function\":{\"name\":\"%\",\"description\":\"%\",\"parameters\":{\"type\":\"%\","
    "\"properties\":{\"%\":{\"type\":\"string\",\"enum\":[\"%\"],"
    "\"description\":\"%\"},\"o\":{\"type\":\"object\",\"properties\":{\"%\":{}},\"required\":[\"%"
    "\"]},\"a\":{\"type\":\"array\",\"items\":{\"%\":{\"%\":\"%\"},"
    "\"type\":[\"%\"]}}},\"required\":[\"%\"]},\"response\":{\"type\":\"object\",\"description\":"
    "\"%\"}}}],\"think\":true}";

/* `everywhere` with `what`, escaped for JSON, in place of each `%` (twice escaped inside the
 * arguments' text). */
static void fill_in(base_text *out, const char *what) {
    base_text_clear(out);
    for (const char *p = everywhere; *p; p++) {
        if (*p != '%') {
            base_text_add(out, p, 1);
            continue;
        }
        bool twice = p[1] == 'q';
        for (const char *w = what; *w; w++) {
            if (*w == '"' || *w == '\\') base_text_add(out, "\\\\\\", twice ? 3 : 1);
            base_text_add(out, w, 1);
        }
    }
}

static void test_forging(test *t) {
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++) {
        const char *literal = text_special_literal((text_special_name)i);
        if (!test_case(t, "chat/cannot-forge-%s", literal)) continue;
        text_make m;
        chat_bench b;
        size_t counts[2][TEXT_SPECIAL_COUNT] = {{0}};
        if (!text_make_tiny(t, &m)) return;
        bench_init(&b);
        for (int forged = 0; forged < 2; forged++) {
            text_prompt prompt;
            base_text chat;
            text_ids ids = {0};
            base_text_init(&chat, &b.heap);
            fill_in(&chat, forged ? literal : "plain");
            if (render(&b, chat.data, TEXT_CHAT_SMALL, &prompt))
                test_fail(t, __FILE__, __LINE__, "%s", b.error.message);
            CHECK_INT(t, text_prompt_encode(m.tok, &prompt, &ids, &b.error), BERYL_OK);
            for (size_t k = 0; k < ids.count; k++)
                for (int s = 0; s < TEXT_SPECIAL_COUNT; s++)
                    counts[forged][s] += ids.data[k] == text_special(m.tok, (text_special_name)s);
            /* and the model reads what was written: its bytes are those of the prompt */
            base_text back;
            base_text_init(&back, &b.heap);
            CHECK_INT(t, text_decode(m.tok, ids.data, ids.count, true, &back, NULL), BERYL_OK);
            CHECK(t, base_view_equal((base_view){back.data, back.size},
                                     (base_view){b.text.data, b.text.size}));
            base_text_fini(&back);
            text_ids_fini(m.tok, &ids);
            base_text_fini(&chat);
        }
        for (int s = 0; s < TEXT_SPECIAL_COUNT; s++) CHECK_INT(t, counts[1][s], counts[0][s]);
        CHECK_INT(t, counts[0][TEXT_SPECIAL_TURN], 4);
        CHECK_INT(t, counts[0][TEXT_SPECIAL_CALL], 2);
        text_make_close(&m);
        bench_fini(t, &b);
    }
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* Values as arguments: what Python and the template make of them. */
static const struct {
    const char *json, *text;
} values[] = {
    {"1", "1"},
    {"-0", "0"},
    {"-0.0", "-0.0"},
    {"1.50", "1.5"},
    {"1e2", "100.0"},
    {"1E16", "1e+16"},
    {"123456789012345680.0", "1.2345678901234568e+17"},
    {"0.0001", "0.0001"},
    {"0.00001", "1e-05"},
    {"0.1", "0.1"},
    {"1e300", "1e+300"},
    {"5e-324", "5e-324"},
    {"2.2250738585072014e-308", "2.2250738585072014e-308"},
    {"12345678901234567890", "12345678901234567890"},
    {"9007199254740993.0", "9007199254740992.0"},
    {"-2.5", "-2.5"},
    {"0.0", "0.0"},
    {"1e15", "1000000000000000.0"},
    {"true", "true"},
    {"false", "false"},
    {"null", "null"},
    {"\"\"", "<|\"|><|\"|>"},
    {"\"a\\nb\\u0000\"", "<|\"|>a\nb"},
    {"[]", "[]"},
    {"{}", "{}"},
    {"[1,[\"x\"],{\"k\":null}]", "[1,[<|\"|>x<|\"|>],{k:null}]"},
    {"{\"b\":1,\"A\":2,\"a\":3,\"B\":4,\"\":5}", "{:5,A:2,a:3,b:1,B:4}"},
    {"{\"x\":1,\"y\":2,\"x\":3}", "{x:3,y:2}"},
    {"{\"\xC3\x89\":1,\"z\":2,\"\xC3\xA9\":3}", "{z:2,\xC3\x89:1,\xC3\xA9:3}"},
};

static void test_values(test *t) {
    if (!test_case(t, "chat/values-look-as-python-prints-them")) return;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        chat_bench b;
        char chat[400], want[400];
        text_prompt prompt;
        bench_init(&b);
        snprintf(chat, sizeof chat,
                 "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
                 "\"f\",\"arguments\":{\"v\":%s}}}]}]}",
                 values[i].json);
        snprintf(want, sizeof want, "<bos><|turn>model\n<|tool_call>call:f{v:%s", values[i].text);
        CHECK_INT(t, render(&b, chat, TEXT_CHAT_SMALL, &prompt), BERYL_OK);
        if (!base_view_begins((base_view){b.text.data, b.text.size}, base_view_of(want)))
            test_fail(t, __FILE__, __LINE__, "%s is %s", values[i].json, b.text.data);
        bench_fini(t, &b);
    }
}

/* Beyond the fixtures: what the template does elsewhere. */
static const struct {
    const char *name, *chat, *text;
} renders[] = {
    {"no-messages", "{\"messages\":[]}", "<bos><|turn>model\n"},
    {"not-generating", "{\"messages\":[{\"role\":\"user\",\"content\":null}],\"generate\":false}",
     "<bos><|turn>user\n<turn|>\n"},
    {"unicode-blanks-are-trimmed",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u00a0\\u3000 \\u2028x\\u200b\\u0085\"}]}",
     "<bos><|turn>user\nx\xE2\x80\x8B<turn|>\n<|turn>model\n"},
    {"roles-are-written-as-they-are",
     "{\"messages\":[{\"role\":\"critic\",\"content\":\"x\"},{\"role\":\"system\",\"content\":"
     "\"y\"}],\"generate\":false}",
     "<bos><|turn>critic\nx<turn|>\n<|turn>system\ny<turn|>\n"},
    {"thoughts-kept-on-demand",
     "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"tool_calls\":[{"
     "\"function\":{\"name\":\"f\"}}]},{\"role\":\"tool\",\"content\":null},"
     "{\"role\":\"user\",\"content\":\"u\"}],\"preserve_thinking\":true,\"generate\":false}",
     "<bos><|turn>model\n<|channel>thought\nhm\n<channel|><|tool_call>call:f{}<tool_call|><|tool_"
     "response>response:f{value:null}<tool_response|><turn|>\n<|turn>user\nu<turn|>\n"},
    {"embedded-responses",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"tool_calls\":["
     "{\"function\":{\"name\":\"f\",\"arguments\":null}}],"
     "\"tool_responses\":[{\"name\":\"f\",\"response\":{\"b\":1,\"a\":\"x\"}},{\"response\":3}]}]}",
     "<bos><|turn>user\nu<turn|>\n<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>"
     "response:f{a:<|\"|>x<|\"|>,b:1}<tool_response|>"
     "<|tool_response>response:unknown{value:3}<tool_response|>"},
    {"result-is-a-list-of-values",
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":"
     "\"f\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":[1,\"x\"]}]}",
     "<bos><|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:unknown{value:[1,"
     "<|\"|>x<|\"|>]}<tool_response|>"},
    {"result-with-a-picture",
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":"
     "\"f\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":"
     "[{\"type\":\"image_url\"},{\"type\":\"text\",\"text\":\" x "
     "\"},{\"type\":\"text\",\"text\":\"y\"}]}]}",
     "<bos><|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:<|\"|> x "
     "y<|\"|>}<tool_response|><|image|>"},
    {"keys-of-other-programs-are-passed-over",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"name\":\"Ann\",\"id\":\"1\",\"content\":"
     "\"x\"},{\"role\":\"assistant\",\"id\":\"2\",\"refusal\":null,\"annotations\":[],\"audio\":"
     "null,"
     "\"function_call\":null,\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
     "\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
     "\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"y\",\"mark\":1}]}],"
     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
     "\"description\":"
     "\"d\"}}],\"generate\":false}",
     "<bos><|turn>system\n<|tool>declaration:f{description:<|\"|>d<|\"|>}<tool|><turn|>\n<|turn>"
     "user\nx"
     "<turn|>\n<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:<|\"|"
     ">y<|"
     "\"|>}<tool_response|>"},
    {"unclosed-thought-is-dropped",
     "{\"messages\":[{\"role\":\"assistant\",\"content\":\" a <|channel>b\"}],\"generate\":false}",
     "<bos><|turn>model\na<turn|>\n"},
    {"schema-corners",
     "{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
     "\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]},\"b\":true,"
     "\"c\":{\"type\":\"object\",\"title\":\"T\",\"description\":\"d\"},\"d\":{\"type\":\"array\","
     "\"items\":{\"type\":\"object\",\"properties\":{\"z\":{\"type\":\"integer\"}},"
     "\"required\":[\"z\"],\"default\":{\"k\":1}}},\"e\":{\"anyOf\":[]}}}}}],\"generate\":false}",
     "<bos><|turn>system\n<|tool>declaration:f{description:<|\"|><|\"|>,parameters:{properties:{a:{"
     "type:<|\"|>['STRING', 'NULL']<|\"|>},b:{type:<|\"|><|\"|>},"
     "c:{description:<|\"|>d<|\"|>,properties:{title:{type:<|\"|><|\"|>}},type:<|\"|>OBJECT<|\"|>},"
     "d:{items:{default:{<|\"|>k<|\"|>:1},properties:{z:{type:<|\"|>INTEGER<|\"|>}},"
     "required:[<|\"|>z<|\"|>],type:<|\"|>OBJECT<|\"|>},type:<|\"|>ARRAY<|\"|>},e:{type:<|\"|><|\"|"
     ">}},type:<|\"|>OBJECT<|\"|>}}<tool|><turn|>\n"},
};

/* What is refused, and which place the message names. */
static const struct {
    const char *chat, *says;
} refusals[] = {
    {"[]", "\"messages\""},
    {"{\"messages\":[],\"thinking\":true}", "thinking: an unknown key; known are messages, tools"},
    {"{\"messages\":[{\"role\":\"user\",\"contnet\":\"x\"}]}",
     "messages[0].contnet: an unknown key; known are role, content"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"bold\":"
     "true}]}]}",
     "messages[0].content[0].bold: an unknown key"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"\":1}]"
     "}]}",
     "messages[0].content[0]"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"fn\":{}}]}]}",
     "messages[0].tool_calls[0].fn: an unknown key"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
     "\"args\":{}}}]}]}",
     "messages[0].tool_calls[0].function.args: an unknown key; known are name, arguments"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_responses\":[{\"name\":\"f\",\"value\":1}]}]}",
     "messages[0].tool_responses[0].value: an unknown key"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"params\":{}}}]}",
     "tools[0].function.params: an unknown key"},
    {"{\"messages\":[],\"tools\":[{\"name\":\"f\"}]}", "tools[0].name: an unknown key"},
    {"{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}]}",
     "messages[0].function_call: is not supported"},
    {"{}", "messages: must be a list"},
    {"{\"messages\":{}}", "messages: must be a list"},
    {"{\"messages\":[1]}", "messages[0]: must be an object"},
    {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role: must be text"},
    {"{\"messages\":[{\"role\":\"user\"},{\"role\":\"\"}]}", "messages[1].role: must be text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":1}]}", "messages[0].content: must be text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", "messages[0].content: must be text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}",
     "messages[0].content[0]: a part must be an object"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":"
     "\"smell\"}]}]}",
     "messages[0].content[1].type: an unknown kind"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
     "messages[0].content[0].text: must be text"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"image\"}]}]}",
     "messages[0].content[0]: a system message"},
    {"{\"messages\":[{\"role\":\"user\",\"tool_calls\":[1]}]}",
     "messages[0].tool_calls: only an assistant"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":\"x\"}]}",
     "messages[0].tool_calls: must be a list"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
     "messages[0].tool_calls[0].function: must be an object"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":1}}]}]}",
     "messages[0].tool_calls[0].function.name: must be text"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
     "\"arguments\":\"{\"}}]}]}",
     "function.arguments: is text that is not JSON"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
     "\"arguments\":\"[1]\"}}]}]}",
     "function.arguments: must be an object"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_responses\":[1]}]}",
     "messages[0].tool_responses[0]: must be an object"},
    {"{\"messages\":[{\"role\":\"assistant\",\"reasoning\":[1]}]}",
     "messages[0].reasoning: must be text"},
    {"{\"messages\":[],\"think\":1}", "think: must be true or false"},
    {"{\"messages\":[],\"generate\":\"yes\"}", "generate: must be true or false"},
    {"{\"messages\":[],\"tools\":{}}", "tools: must be a list"},
    {"{\"messages\":[],\"tools\":[{}]}", "tools[0].function: must be an object"},
    {"{\"messages\":[],\"tools\":[{\"function\":{}}]}", "tools[0].function.name: must be text"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":[1]}}]}",
     "tools[0].function.parameters: must be an object"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":[1]}"
     "}}]}",
     "parameters.properties: must be an object"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"required\":true}}"
     "}]}",
     "parameters.required: must be a list"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
     "\"x\":{\"type\":3}}}}}]}",
     "properties.x.type: must be text"},
    {"{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
     "\"x\":{\"description\":3}}}}}]}",
     "properties.x.description: must be text"},
};

static void test_rendering(test *t) {
    for (size_t i = 0; i < sizeof renders / sizeof *renders; i++) {
        if (!test_case(t, "chat/%s", renders[i].name)) continue;
        chat_bench b;
        text_prompt prompt;
        bench_init(&b);
        if (render(&b, renders[i].chat, TEXT_CHAT_SMALL, &prompt))
            test_fail(t, __FILE__, __LINE__, "%s", b.error.message);
        CHECK_TEXT(t, b.text.data, renders[i].text);
        bench_fini(t, &b);
    }
    if (test_case(t, "chat/refusals-name-the-place")) {
        for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
            chat_bench b;
            text_prompt prompt;
            bench_init(&b);
            CHECK_INT(t, render(&b, refusals[i].chat, TEXT_CHAT_LARGE, &prompt), BERYL_BAD_INPUT);
            if (!strstr(b.error.message, refusals[i].says))
                test_fail(t, __FILE__, __LINE__, "%s: \"%s\" lacks \"%s\"", refusals[i].chat,
                          b.error.message, refusals[i].says);
            bench_fini(t, &b);
        }
    }
    if (test_case(t, "chat/media-keep-their-parts")) {
        chat_bench b;
        text_prompt prompt;
        size_t n = 0;
        bench_init(&b);
        CHECK_INT(t,
                  render(&b,
                         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
                         "\"path\":\"a.png\"},{\"type\":\"input_audio\"},{\"type\":\"video\"}]}]}",
                         TEXT_CHAT_SMALL, &prompt),
                  BERYL_OK);
        for (size_t i = 0; i < prompt.n_chunk; i++) {
            if (prompt.chunks[i].kind < TEXT_CHUNK_IMAGE) continue;
            CHECK_INT(t, prompt.chunks[i].kind, TEXT_CHUNK_IMAGE + (int)n++);
            CHECK(t, prompt.chunks[i].part && prompt.chunks[i].part->kind == JSON_OBJECT);
        }
        CHECK_INT(t, n, 3);
        bench_fini(t, &b);
    }
    if (test_case(t, "chat/missing-literals-are-refused")) {
        const base_view tokens[] = {BASE_VIEW("a"), BASE_VIEW("b"), BASE_VIEW("ab"),
                                    BASE_VIEW("<bos>")},
                        merges[] = {BASE_VIEW("a b")};
        text_vocab_desc desc = {.tokens = tokens,
                                .n_token = 4,
                                .first_merge = merges,
                                .next_merge = text_next_merge,
                                .n_merge = 1,
                                .bos = -1,
                                .eos = -1,
                                .pad = -1,
                                .unk = -1};
        text_tokenizer *tok = NULL;
        text_prompt prompt;
        text_ids ids = {0};
        chat_bench b;
        bench_init(&b);
        CHECK_INT(t, render(&b, "{\"messages\":[]}", TEXT_CHAT_SMALL, &prompt), BERYL_OK);
        CHECK_INT(t, text_tokenizer_open(&b.heap, &desc, &tok, NULL), BERYL_OK);
        CHECK_INT(t, text_prompt_encode(tok, &prompt, &ids, &b.error), BERYL_UNSUPPORTED);
        CHECK(t, strstr(b.error.message, "<|turn>"));
        CHECK_INT(t, ids.count, 0);
        text_tokenizer_close(tok);
        bench_fini(t, &b);
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Items as text: T(...), H(...) for thoughts, W(...) for a call while it is written, C(...) for the
 * call. */
static void items_show(text_parser *p, base_text *out) {
    text_item item;
    while (text_parser_next(p, &item))
        base_text_print(out, "%c(%.*s)", "THWC"[item.kind], (int)item.text.size, item.text.data);
}

static void parse(test *t, const text_make *m, const char *answer, bool in_thought, bool written,
                  base_text *out) {
    text_ids ids = {0};
    text_parser *p = NULL;
    base_text raw, *to = out;
    base_text_init(&raw, out->heap);
    base_text_clear(out);
    CHECK_INT(t, text_encode(m->tok, answer, strlen(answer), TEXT_ALL, &ids, NULL), BERYL_OK);
    CHECK_INT(t, text_parser_open(out->heap, m->tok, in_thought, &p, NULL), BERYL_OK);
    for (size_t i = 0; p && i <= ids.count; i++) {
        CHECK_INT(
            t, i < ids.count ? text_parser_push(p, ids.data[i], NULL) : text_parser_finish(p, NULL),
            BERYL_OK);
        items_show(p, &raw);
    }
    text_parser_close(p);
    text_ids_fini(m->tok, &ids);
    /* pieces of one kind joined; a call's text left out unless wanted */
    char kind = 0;
    base_text_add(to, "", 0);
    for (const char *at = raw.data ? raw.data : ""; *at;) {
        const char *end = at + 2;
        while (*end && !(*end == ')' && (!end[1] || (strchr("THWC", end[1]) && end[2] == '('))))
            end++;
        if (*at != 'W' || written) {
            if (*at == kind && kind != 'C') base_text_add(to, at + 2, (size_t)(end - at - 2));
            else base_text_print(to, kind ? ")%.*s" : "%.*s", (int)(end - at), at);
            kind = *at;
        }
        at = *end ? end + 1 : end;
    }
    if (kind) base_text_add(to, ")", 1);
    base_text_fini(&raw);
}

static const struct {
    const char *name, *answer, *items;
} answers[] = {
    {"plain-text", "Hello there", "T(Hello there)"},
    {"stop-ends-text", "Hi \n<turn|>", "T(Hi)"},
    {"blanks-inside-stay", "\n\n  a \n\n b  ", "T(  a \n\n b)"},
    {"thought-then-text", "<|channel>thought\nhm, \n yes\n<channel|>\n\nAnswer",
     "H(hm, \n yes)T(Answer)"},
    {"empty-thought", "<|channel>thought\n<channel|>A", "T(A)"},
    {"thought-without-line-end", "<|channel>thought<channel|>A", "T(A)"},
    {"thought-with-another-head", "<|channel>thoughts\nx<channel|>A", "H(thoughts\nx)T(A)"},
    {"thought-cut-in-its-head", "<|channel>thou", "H(thou)"},
    {"unclosed-thought", "<|channel>thought\nhm", "H(hm)"},
    {"stray-channel-end", "a<channel|>b", "T(ab)"},
    {"stray-response", "a<|tool_response>b", "T(ab)"},
    {"tags-as-plain-text-are-text", "a <|chan nel> {}", "T(a <|chan nel> {})"},
    {"call", "<|tool_call>call:f{}<tool_call|><|tool_response>",
     "C({\"name\":\"f\",\"arguments\":{}})"},
    {"text-then-call", "Let me look.\n<|tool_call>call:now{}<tool_call|>",
     "T(Let me look.)C({\"name\":\"now\",\"arguments\":{}})"},
    {"two-calls", "<|tool_call>call:a{}<tool_call|><|tool_call>call:b{}<tool_call|>",
     "C({\"name\":\"a\",\"arguments\":{}})C({\"name\":\"b\",\"arguments\":{}})"},
    {"arguments",
     "<|tool_call>call:f{a:<|\"|>x, \"y\": "
     "{z}<|\"|>,b:-1.5e3,c:[1,<|\"|>q<|\"|>,[],{k:true}],d:null,e:{f:{g:false}}}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":\"x, \\\"y\\\": "
     "{z}\",\"b\":-1.5e3,\"c\":[1,\"q\",[],{\"k\":true}],\"d\":null,\"e\":{\"f\":{\"g\":false}}}}"
     ")"},
    {"line-ends-in-strings", "<|tool_call>call:f{a:<|\"|>x\ny<|\"|>}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":\"x\\ny\"}})"},
    {"quoted-keys", "<|tool_call>call:f{<|\"|>a b<|\"|>:1,\"c\":2}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a b\":1,\"c\":2}})"},
    {"strings-as-in-json", "<|tool_call>call:f{a:\"x, \\\"y\\\"\",b:\"\\q\"}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":\"x, \\\"y\\\"\",\"b\":\"\\\\q\"}})"},
    {"bare-words", "<|tool_call>call:f{a: Oslo city ,b:007,c:1.,d:}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":\"Oslo "
     "city\",\"b\":\"007\",\"c\":\"1.\",\"d\":null}})"},
    {"blanks-between", "<|tool_call> call:f { a : 1 , b : [ 2 , 3 ] } <tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":[2,3]}})"},
    {"call-never-closed", "<|tool_call>call:f{a:<|\"|>x<|\"|>}",
     "C({\"name\":\"f\",\"arguments\":{\"a\":\"x\"}})"},
    {"call-cut-in-a-string", "<|tool_call>call:f{a:[<|\"|>x",
     "C({\"name\":\"f\",\"arguments\":{\"a\":[\"x\"]}})"},
    {"call-cut-in-a-key", "<|tool_call>call:f{a:1,b",
     "C({\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":null}})"},
    {"call-closed-twice", "<|tool_call>call:f{}<tool_call|><tool_call|>x",
     "C({\"name\":\"f\",\"arguments\":{}})T(x)"},
    {"call-opened-twice", "<|tool_call>call:f{a:1<|tool_call>call:g{}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":1}})C({\"name\":\"g\",\"arguments\":{}})"},
    {"call-without-prefix", "<|tool_call>f{a:1}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":1}})"},
    {"call-without-arguments", "<|tool_call>call:f<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{}})"},
    {"empty-call", "<|tool_call> <tool_call|>", ""},
    {"no-call-at-all", "<|tool_call>I think <|\"|>so<tool_call|>", "T(I think <|\"|>so)"},
    {"thought-between-calls", "<|tool_call>call:f{<|channel>thought\nx<channel|>",
     "C({\"name\":\"f\",\"arguments\":{}})H(x)"},
    {"quote-in-text", "say <|\"|>x", "T(say <|\"|>x)"},
    {"crossed-brackets", "<|tool_call>call:f{a:[1,{b:2],c:3}<tool_call|>",
     "C({\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":2,\"c\":3}]}})"},
};

static void test_parsing(test *t) {
    text_make m;
    chat_bench b;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (!test_case(t, "chat/answer-%s", answers[i].name) || !text_make_tiny(t, &m)) continue;
        bench_init(&b);
        parse(t, &m, answers[i].answer, false, false, &b.text);
        CHECK_TEXT(t, b.text.data, answers[i].items);
        bench_fini(t, &b);
        text_make_close(&m);
    }
    if (test_case(t, "chat/answer-goes-on-in-a-thought") && text_make_tiny(t, &m)) {
        bench_init(&b);
        parse(t, &m, "thought\nhm <channel|>x", true, false, &b.text);
        CHECK_TEXT(t, b.text.data,
                   "H(thought\nhm)T(x)"); /* the prompt has written the head already */
        bench_fini(t, &b);
        text_make_close(&m);
    }
    if (test_case(t, "chat/answer-shows-a-call-while-it-is-written") && text_make_tiny(t, &m)) {
        bench_init(&b);
        parse(t, &m, "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>", false, true, &b.text);
        CHECK_TEXT(t, b.text.data,
                   "W(call:f{a:<|\"|>x<|\"|>})C({\"name\":\"f\",\"arguments\":{\"a\":\"x\"}})");
        bench_fini(t, &b);
        text_make_close(&m);
    }
    if (test_case(t, "chat/answer-nested-too-deeply-is-text") && text_make_tiny(t, &m)) {
        char deep[2000] = "<|tool_call>call:f{a:";
        for (int i = 0; i < 100; i++) strcat(deep, i % 2 ? "[" : "{k:");
        bench_init(&b);
        parse(t, &m, deep, false, false, &b.text);
        CHECK(t, b.text.size > 2 && b.text.data[0] == 'T');
        bench_fini(t, &b);
        text_make_close(&m);
    }
    if (test_case(t, "chat/answer-of-any-tokens-is-taken") && text_make_tiny(t, &m)) {
        base_random random = {11};
        bench_init(&b);
        for (int round = 0; round < 300; round++) {
            text_parser *p = NULL;
            base_json *json = NULL;
            text_item item;
            CHECK_INT(t, text_parser_open(&b.heap, m.tok, round & 1, &p, NULL), BERYL_OK);
            int n = (int)(base_random_next(&random) % 60);
            for (int i = 0; i <= n; i++) {
                static const char shape[] = "{}[]:,\"\\ \n1ca";
                uint64_t r = base_random_next(&random);
                int32_t id =
                    r % 3 == 0 ? (int32_t)(r >> 8) % TEXT_SPECIAL_COUNT
                    : r % 3 == 1
                        ? text_find(m.tok, (base_view){&shape[(r >> 8) % (sizeof shape - 1)], 1})
                        : (int32_t)((r >> 8) % text_n_token(m.tok));
                if (id < 0) id = text_find(m.tok, BASE_VIEW("call"));
                CHECK_INT(t, i < n ? text_parser_push(p, id, NULL) : text_parser_finish(p, NULL),
                          BERYL_OK);
                while (text_parser_next(p, &item))
                    if (item.kind == TEXT_ITEM_CALL)
                        CHECK_INT(
                            t,
                            base_json_parse(&b.arena, item.text.data, item.text.size, &json, NULL),
                            BERYL_OK);
            }
            text_parser_close(p);
        }
        bench_fini(t, &b);
        text_make_close(&m);
    }
}

/* What is rendered as a call is parsed as the same call. */
static void test_round_trip(test *t) {
    static const char arguments[] =
        "{\"a\":\"x \\\"y\\\" {z}, [w]: "
        "\\n\xC3\xA9\",\"b\":[1,-2.5,true,null,[],{}],\"c\":{\"d\":\"\",\"e\":{\"f\":0}}}";
    text_make m;
    chat_bench b;
    text_prompt prompt;
    char chat[400], want[400];
    if (!test_case(t, "chat/calls-come-back") || !text_make_tiny(t, &m)) return;
    bench_init(&b);
    snprintf(chat, sizeof chat,
             "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
             "\"arguments\":%s}}]}],\"generate\":false}",
             arguments);
    snprintf(want, sizeof want, "T(model)C({\"name\":\"f\",\"arguments\":%s})", arguments);
    CHECK_INT(t, render(&b, chat, TEXT_CHAT_SMALL, &prompt), BERYL_OK);
    char *text = base_arena_text(&b.arena, b.text.data, b.text.size);
    parse(t, &m, text, false, false, &b.text);
    CHECK_TEXT(t, b.text.data, want);
    bench_fini(t, &b);
    text_make_close(&m);
}

static void test_memory(test *t) {
    text_make m;
    base_text chat;
    beryl_status status = BERYL_NO_MEMORY;
    if (!test_case(t, "chat/every-allocation-may-fail") || !text_make_tiny(t, &m)) return;
    base_text_init(&chat, &m.heap);
    fill_in(&chat, "x");
    for (long n = 0; n < 500 && status; n++) {
        text_make_limit limit = {n, 0};
        base_heap heap;
        base_arena arena;
        base_json *json = NULL;
        text_prompt prompt;
        text_parser *p = NULL;
        text_make_limited(&heap, &limit);
        base_arena_init(&arena, &heap);
        status = base_json_parse(&arena, chat.data, chat.size, &json, NULL);
        if (!status) status = text_chat_render(&arena, json, TEXT_CHAT_LARGE, &prompt, NULL);
        if (!status) status = text_parser_open(&heap, m.tok, false, &p, NULL);
        static const int32_t ids[] = {TEXT_SPECIAL_CHANNEL,
                                      330,
                                      TEXT_SPECIAL_CHANNEL_END,
                                      340,
                                      TEXT_SPECIAL_CALL,
                                      341,
                                      342,
                                      TEXT_SPECIAL_QUOTE,
                                      TEXT_SPECIAL_CALL_END};
        for (size_t i = 0; i < sizeof ids / sizeof *ids && !status; i++)
            status = text_parser_push(p, ids[i], NULL);
        if (!status) status = text_parser_finish(p, NULL);
        CHECK(t, status == BERYL_OK || status == BERYL_NO_MEMORY);
        text_parser_close(p);
        base_arena_fini(&arena);
        CHECK_INT(t, limit.out, 0);
    }
    CHECK_INT(t, status, BERYL_OK);
    base_text_fini(&chat);
    text_make_close(&m);
}

void test_chat(test *t) {
    test_fixtures(t, "e2b", TEXT_CHAT_SMALL);
    test_fixtures(t, "31b", TEXT_CHAT_LARGE);
    test_forging(t);
    test_values(t);
    test_rendering(t);
    test_parsing(t);
    test_round_trip(t);
    test_memory(t);
}
