/*
 * chat_signals.h: Ctrl-C, and the signals that end a program, as flags.
 *
 * Ctrl-C is noted and ends what is being done, never the program: an answer, or a line. Only one that
 * is pressed the third time before the first was noticed ends it. SIGTERM and SIGHUP are noted too:
 * the program then saves and ends. While a line is waited for they are let through one by one, so
 * that none is missed between looking and waiting.
 */
#ifndef APP_CHAT_SIGNALS_H
#define APP_CHAT_SIGNALS_H

#include <stdbool.h>

void chat_signals_catch(void);

/* Was Ctrl-C pressed since the last chat_signals_forget? */
bool chat_signals_interrupted(void);
void chat_signals_forget(void);

/* The signal that ends the program; 0: none. */
int chat_signals_ending(void);

/* Wait until a file can be read; false: a signal came, and was noted. */
bool chat_signals_wait(int file);

#endif /* APP_CHAT_SIGNALS_H */
