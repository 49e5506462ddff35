/*
 * command_bench.c: `cellar bench`: which part is to be measured.
 *
 * The parts stand in bench_*.c, each with a help text of its own; here is the table of them. A part that does
 * not exist is answered with those that do.
 */
#include <stdio.h>
#include <string.h>

#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/options.h"

const char command_bench_help[] =
    "cellar bench model|parallel|memory|session|machine [OPTIONS]\n"
    "\n"
    "Measure how fast something is on this machine: the median of several runs, after\n"
    "one that warms caches and pages, with the least and the most.\n"
    "\n"
    "  model     tokens a second: reading a prompt and generating, behind texts of\n"
    "            given lengths\n"
    "  parallel  tokens a second of several sequences that go on from one prefix\n"
    "  memory    what each operation of the memory costs, by itself, without a model\n"
    "  session   saving and loading, against copying as many bytes\n"
    "  machine   how fast memory and arithmetic are here at all\n"
    "\n"
    "'cellar bench model --help', and likewise, has the options of each. All print\n"
    "one page with the machine on top, or one JSON document with --json.\n"
    "\n"
    "Examples\n"
    "  cellar bench model -m model.gguf -t 2 --roofline\n"
    "  cellar bench model -m model.gguf -p 0 -n 32 -d 0,4096 --ctk q8_0\n"
    "  cellar bench parallel -m model.gguf -s 8 --prefix 1024 -n 64\n"
    "  cellar bench memory -c 131072 -s 1,16,64\n"
    "  cellar bench session --size 256 --folder /var/tmp\n"
    "  cellar bench machine --json | jq .limits\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} parts[] = {
    {"model", bench_model},     {"parallel", bench_model},  {"memory", bench_memory},
    {"session", bench_session}, {"machine", bench_machine},
};

int command_bench(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            return parts[i].run(argc - 1, argv + 1);
        }
    }
    if (argc == 2 && options_are_asked_for(argv[1])) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            options_print_word(parts[i].name, NULL);
        }
        return EXIT_CODE_OK;
    }
    fputs("cellar bench: what? model, parallel, memory, session or machine\n"
          "See 'cellar help bench'.\n",
          stderr);
    return EXIT_CODE_USAGE;
}
