/* Texts of the operating failures (see err.h). */
#include "err.h"

const char *err_text(int code)
{
    switch (code) {
    case ERR_OK:
        return "ok";
#define X(name, number, text)                                                    \
    case ERR_##name:                                                             \
        return text;
        PEERAGE_ERRORS(X)
#undef X
    }
    return "unknown error";
}
