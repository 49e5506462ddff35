/*
 * shared_tls.c: the encrypted kind of connection, by OpenSSL.
 *
 * A certificate is checked against the system's authorities or a file, and has to be of the host that was asked
 * for; there is no way to leave that out. OpenSSL never waits by itself: it says what it wants, and
 * shared_socket_poll waits for that. A build without OpenSSL says so and refuses.
 */
#include "shared/shared_socket.h"

#include "report.h"
#include "shared/shared_address.h"

#if !defined(CELLAR_NO_SHARED) &&                                                                  \
    __has_include(<openssl/ssl.h>) && __has_include(<openssl/opensslconf.h>)

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

struct shared_tls {
    SSL_CTX *context;
};

struct shared_session {
    SSL *ssl;
    int descriptor;
};

/* What OpenSSL noted first; its own texts are short. */
static cellar_status fail(cellar_error *error, cellar_status status, const char *what)
{
    char text[160] = "unknown reason";
    const unsigned long number = ERR_get_error();
    if (number != 0) {
        ERR_error_string_n(number, text, sizeof text);
    }
    ERR_clear_error();
    return report(error, status, -1, "%s: %s", what, text);
}

cellar_status shared_tls_create(const char *ca_file, shared_tls **out, cellar_error *error)
{
    *out = NULL;
    shared_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL || (tls->context = SSL_CTX_new(TLS_client_method())) == NULL) {
        free(tls);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for TLS");
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    const int is_set = SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) == 1 &&
                       (ca_file != NULL ? SSL_CTX_load_verify_locations(tls->context, ca_file, NULL)
                                        : SSL_CTX_set_default_verify_paths(tls->context)) == 1;
    if (!is_set) {
        shared_tls_destroy(tls);
        return fail(error, CELLAR_INVALID, "the authorities for TLS cannot be read");
    }
    *out = tls;
    return CELLAR_OK;
}

void shared_tls_destroy(shared_tls *tls)
{
    if (tls != NULL) {
        SSL_CTX_free(tls->context);
        free(tls);
    }
}

/* After a call that did not succeed: wait for what it wants; anything else is a failure. */
static cellar_status wait_for(shared_session *s, int result, const shared_wait *wait,
                              const char *what, cellar_error *error)
{
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return shared_socket_poll(s->descriptor, false, wait, error);
    case SSL_ERROR_WANT_WRITE:
        return shared_socket_poll(s->descriptor, true, wait, error);
    case SSL_ERROR_ZERO_RETURN:
        return report(error, CELLAR_IO, -1, "the connection was closed");
    default:
        return fail(error, CELLAR_IO, what);
    }
}

/* The name in the certificate has to be the host's. */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[16];
    char name[SHARED_HOST_BYTES]; /* OpenSSL's macro takes its constness away */
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    }
    const int n = snprintf(name, sizeof name, "%s", host);
    return n >= 0 && (size_t)n < sizeof name && SSL_set1_host(ssl, host) == 1 &&
           SSL_set_tlsext_host_name(ssl, name) == 1;
}

cellar_status shared_session_open(const shared_tls *tls, int descriptor, const char *host,
                                  const shared_wait *wait, shared_session **out,
                                  cellar_error *error)
{
    shared_session *s = calloc(1, sizeof *s);
    if (s == NULL || (s->ssl = SSL_new(tls->context)) == NULL ||
        SSL_set_fd(s->ssl, descriptor) != 1 || !expect_host(s->ssl, host)) {
        shared_session_close(s);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for TLS");
    }
    s->descriptor = descriptor;
    for (;;) {
        ERR_clear_error();
        const int result = SSL_connect(s->ssl);
        if (result == 1) {
            *out = s;
            return CELLAR_OK;
        }
        const cellar_status status = wait_for(s, result, wait, "TLS failed", error);
        if (status != CELLAR_OK) {
            shared_session_close(s);
            return status;
        }
    }
}

void shared_session_close(shared_session *s)
{
    if (s != NULL) {
        SSL_free(s->ssl);
        free(s);
    }
}

cellar_status shared_session_send(shared_session *s, const void *bytes, size_t n,
                                  const shared_wait *wait, cellar_error *error)
{
    for (const char *at = bytes; n > 0;) {
        ERR_clear_error();
        const int part = n < INT_MAX / 2 ? (int)n : INT_MAX / 2;
        const int result = SSL_write(s->ssl, at, part);
        if (result > 0) {
            at += result;
            n -= (size_t)result;
            continue;
        }
        const cellar_status status = wait_for(s, result, wait, "the connection is lost", error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    return CELLAR_OK;
}

cellar_status shared_session_receive(shared_session *s, void *to, size_t most, size_t *n,
                                     const shared_wait *wait, cellar_error *error)
{
    for (;;) {
        ERR_clear_error();
        const int result = SSL_read(s->ssl, to, most < INT_MAX ? (int)most : INT_MAX);
        if (result > 0) {
            *n = (size_t)result;
            return CELLAR_OK;
        }
        const cellar_status status = wait_for(s, result, wait, "the connection is lost", error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
}

#else

cellar_status shared_tls_create(const char *ca_file, shared_tls **out, cellar_error *error)
{
    (void)ca_file;
    *out = NULL;
    return report(error, CELLAR_UNSUPPORTED, -1,
                  "rediss:// needs OpenSSL, and this program was built without it; use redis:// "
                  "through a tunnel");
}

void shared_tls_destroy(shared_tls *tls)
{
    (void)tls;
}

cellar_status shared_session_open(const shared_tls *tls, int descriptor, const char *host,
                                  const shared_wait *wait, shared_session **out,
                                  cellar_error *error)
{
    (void)tls, (void)descriptor, (void)host, (void)wait;
    *out = NULL;
    return report(error, CELLAR_UNSUPPORTED, -1, "this program was built without TLS");
}

void shared_session_close(shared_session *s)
{
    (void)s;
}

cellar_status shared_session_send(shared_session *s, const void *bytes, size_t n,
                                  const shared_wait *wait, cellar_error *error)
{
    (void)s, (void)bytes, (void)n, (void)wait;
    return report(error, CELLAR_UNSUPPORTED, -1, "this program was built without TLS");
}

cellar_status shared_session_receive(shared_session *s, void *to, size_t most, size_t *n,
                                     const shared_wait *wait, cellar_error *error)
{
    (void)s, (void)to, (void)most, (void)wait;
    *n = 0;
    return report(error, CELLAR_UNSUPPORTED, -1, "this program was built without TLS");
}

#endif
