/*
 * stop_signal.h: Ctrl-C, SIGTERM and SIGHUP as a number that is looked at between two pieces of work.
 *
 * For commands that have files to take away before they end. The first signal is noted, the second ends the
 * program at once; one that was ignored from the start (nohup) stays so.
 */
#ifndef APP_STOP_SIGNAL_H
#define APP_STOP_SIGNAL_H

#define EXIT_CODE_SIGNAL 128 /* and the signal's number, as shells count */

/* From now on. */
void stop_signal_catch(void);

/* The signal that came; 0: none. */
int stop_signal_caught(void);

#endif /* APP_STOP_SIGNAL_H */
