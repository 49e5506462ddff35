/*
 * api_page.c: the page at /, and the three files it is made of.
 *
 * They lie in the program (page.S) and hold nothing of anybody, so no key is asked for them; what the page shows it asks
 * of the other endpoints, with the key that its reader gives it. The browser is told to run nothing but that one script, to
 * load nothing from anywhere else, to send nothing anywhere else, and to let no other page frame this one.
 */
#include <stddef.h>

#include "serve/server.h"

extern const char page_html_begin[], page_html_end[], page_style_begin[], page_style_end[],
    page_script_begin[], page_script_end[], page_icon_begin[], page_icon_end[];

static void reply(http_request *request, const char *type, const char *begin, const char *end)
{
    http_reply_text(request, 200, type, begin, (size_t)(end - begin));
    http_add_header(request, "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'");
    http_add_header(request, "X-Content-Type-Options", "nosniff");
    http_add_header(request, "Referrer-Policy", "no-referrer");
    http_add_header(request, "Cross-Origin-Opener-Policy", "same-origin");
    http_add_header(request, "Cross-Origin-Resource-Policy", "same-origin");
    http_add_header(request, "Cache-Control", "no-cache");
}

void api_page(server *s, http_request *request)
{
    (void)s;
    reply(request, "text/html; charset=utf-8", page_html_begin, page_html_end);
}

void api_page_style(server *s, http_request *request)
{
    (void)s;
    reply(request, "text/css; charset=utf-8", page_style_begin, page_style_end);
}

void api_page_script(server *s, http_request *request)
{
    (void)s;
    reply(request, "text/javascript; charset=utf-8", page_script_begin, page_script_end);
}

void api_page_icon(server *s, http_request *request)
{
    (void)s;
    reply(request, "image/svg+xml", page_icon_begin, page_icon_end);
}
