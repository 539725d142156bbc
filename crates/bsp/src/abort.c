/* bsp_abort() of bsp.h: a text that is made as by printf(). */
#include <stdarg.h>
#include <stdio.h>

void bsp_abort_text(const char *text);

void bsp_abort(const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bsp_abort_text(text);
}
