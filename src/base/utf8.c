/* utf8.c - see utf8.h. The one idea: only the second byte has a range that depends on the first
 * (Unicode, table 3-7). */
#include "base/utf8.h"

base_utf8_kind base_utf8_scan(const uint8_t *bytes, size_t size, size_t *length) {
    uint8_t lead = bytes[0], low = 0x80, high = 0xBF;
    size_t need;
    *length = 1;
    if (lead < 0x80) return BASE_UTF8_WHOLE;
    if (lead < 0xC2 || lead > 0xF4) return BASE_UTF8_INVALID;
    if (lead < 0xE0) {
        need = 2;
    } else if (lead < 0xF0) {
        need = 3;
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
    } else {
        need = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    }
    for (size_t i = 1; i < need; i++) {
        if (i == size) return BASE_UTF8_PART;
        if (bytes[i] < low || bytes[i] > high) return BASE_UTF8_INVALID;
        low = 0x80, high = 0xBF;
        *length = i + 1;
    }
    return BASE_UTF8_WHOLE;
}

uint32_t base_utf8_code(const uint8_t *bytes, size_t length) {
    static const uint8_t mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = bytes[0] & mask[length];
    for (size_t i = 1; i < length; i++) code = code << 6 | (bytes[i] & 0x3Fu);
    return code;
}

size_t base_utf8(const char *data, size_t size, uint32_t *code) {
    const uint8_t *bytes = (const uint8_t *)data;
    size_t length;
    if (!size || base_utf8_scan(bytes, size, &length) != BASE_UTF8_WHOLE) return 0;
    if (code) *code = base_utf8_code(bytes, length);
    return length;
}
