#include "cli/complete.h"

#include <string.h>

/* Text within single quotes. Shells but fish leave the quotes for an apostrophe. */
static void put_quoted(const char *text, const char *escaped, const char *apostrophe, FILE *out)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs(apostrophe, out);
		else
			fprintf(out, "%s%c", strchr(escaped, *text) ? "\\" : "", *text);
	}
}

static void put_words(const struct cli_option *o, FILE *out)
{
	for (int i = 0; o->words[i]; i++)
		fprintf(out, "%s%s", i ? " " : "", o->words[i]);
}

/* "-x|--name", a pattern of bash's case. */
static void bash_pattern(const struct cli_option *o, FILE *out)
{
	if (o->letter)
		fprintf(out, "-%c%s", o->letter, o->name ? "|" : "");
	if (o->name)
		fprintf(out, "--%s", o->name);
}

static const char *bash_offer(enum cli_offer offer)
{
	switch (offer) {
	case CLI_OFFER_FILE:
		return "_rcp_files";
	case CLI_OFFER_COMMAND:
		return "mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")";
	case CLI_OFFER_HOST:
		return "_rcp_hosts";
	case CLI_OFFER_DEVICE:
		return "COMPREPLY=($(compgen -W \"$(ls /sys/class/infiniband 2>/dev/null)\" -- "
		       "\"$cur\"))";
	case CLI_OFFER_NOTHING:
		break;
	}
	return ":";
}

static void bash_argument(const struct cli_option *o, FILE *out)
{
	fputs("\t", out);
	bash_pattern(o, out);
	fputs(") ", out);
	if (o->words) {
		fputs("COMPREPLY=($(compgen -W '", out);
		put_words(o, out);
		fputs("' -- \"$cur\"))", out);
	} else {
		fputs(bash_offer(o->offer), out);
	}
	fputs("; return ;;\n", out);
}

static const char bash_head[] =
	"# bash completion for rcp, made from its option table\n"
	"_rcp_files()\n"
	"{\n"
	"\tcompopt -o filenames\n"
	"\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	"}\n"
	"\n"
	"# bash-completion knows the hosts, where it is installed\n"
	"_rcp_hosts()\n"
	"{\n"
	"\tdeclare -F _known_hosts_real >/dev/null || return\n"
	"\tcompopt -o nospace\n"
	"\t_known_hosts_real ${1:+\"$1\"} -a -- \"$cur\"\n"
	"}\n"
	"\n"
	"_rcp()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]}\n"
	"\n"
	"\tCOMPREPLY=()\n"
	"\t# bash makes words of the = in --name=value and of the : in host:path\n"
	"\tif [[ $cur == = ]]; then\n"
	"\t\tcur=\n"
	"\telif [[ $option == = ]]; then\n"
	"\t\toption=${COMP_WORDS[COMP_CWORD-2]}\n"
	"\telif [[ $cur == : || $option == : ]]; then\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tcase $option in\n";

static const char bash_tail[] =
	"' -- \"$cur\"))\n"
	"\t\t[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
	"\t\treturn\n"
	"\tfi\n"
	"\t_rcp_files\n"
	"\t[[ $cur == */* ]] || _rcp_hosts -c\n"
	"}\n"
	"complete -F _rcp rcp\n";

void cli_complete_bash(const struct cli_option *table, FILE *out)
{
	const char *between = "";

	fputs(bash_head, out);
	for (const struct cli_option *o = table; !cli_option_end(o); o++)
		if (o->ready && o->argument)
			bash_argument(o, out);
	fputs("\tesac\n\tif [[ $cur == -* ]]; then\n\t\tCOMPREPLY=($(compgen -W '", out);
	for (const struct cli_option *o = table; !cli_option_end(o); o++) {
		if (!o->ready)
			continue;
		if (o->letter) {
			fprintf(out, "%s-%c", between, o->letter);
			between = " ";
		}
		if (o->name) {
			fprintf(out, "%s--%s%s", between, o->name, o->argument ? "=" : "");
			between = " ";
		}
	}
	fputs(bash_tail, out);
}

static const char *zsh_offer(enum cli_offer offer)
{
	switch (offer) {
	case CLI_OFFER_FILE:
		return "_files";
	case CLI_OFFER_COMMAND:
		return "_command_names -e";
	case CLI_OFFER_HOST:
		return "_hosts";
	case CLI_OFFER_DEVICE:
		return "_path_files -W /sys/class/infiniband";
	case CLI_OFFER_NOTHING:
		break;
	}
	return " ";
}

/* One spec of _arguments: '-x+[help]:NAME:action' */
static void zsh_spec(const struct cli_option *o, const char *dashed, const char *sign, FILE *out)
{
	bool again = o->kind == CLI_COUNT || o->kind == CLI_LIST || o->ssh == 'o';

	fputs("\t'", out);
	if (again)
		fputs("*", out);
	else if (o->letter && o->name)
		fprintf(out, "(-%c --%s)", o->letter, o->name);
	fprintf(out, "%s%s[", dashed, o->argument ? sign : "");
	put_quoted(o->help, "[]:\\", "'\\''", out);
	fputs("]", out);
	if (o->argument) {
		fputs(":", out);
		put_quoted(o->argument, "[]:\\", "'\\''", out);
		fputs(":", out);
	}
	if (o->words) {
		fputs("(", out);
		put_words(o, out);
		fputs(")", out);
	} else if (o->argument) {
		fputs(zsh_offer(o->offer), out);
	}
	fputs("' \\\n", out);
}

static const char zsh_head[] =
	"#compdef rcp\n"
	"# zsh completion for rcp, made from its option table\n"
	"_rcp_operand() {\n"
	"\tif compset -P 1 '*:'; then\n"
	"\t\t_remote_files -- ssh\n"
	"\telse\n"
	"\t\t_alternative 'files:file:_files' 'hosts:host:_hosts -q -S \\:'\n"
	"\tfi\n"
	"}\n"
	"\n"
	"_arguments -s -S \\\n";

void cli_complete_zsh(const struct cli_option *table, FILE *out)
{
	fputs(zsh_head, out);
	for (const struct cli_option *o = table; !cli_option_end(o); o++) {
		char dashed[64];

		if (o->ready && o->letter) {
			snprintf(dashed, sizeof(dashed), "-%c", o->letter);
			zsh_spec(o, dashed, "+", out);
		}
		if (o->ready && o->name) {
			snprintf(dashed, sizeof(dashed), "--%s", o->name);
			zsh_spec(o, dashed, "=", out);
		}
	}
	fputs("\t'*:file or host:_rcp_operand'\n", out);
}

static void fish_argument(const struct cli_option *o, FILE *out)
{
	if (o->words) {
		fputs(" -x -a '", out);
		put_words(o, out);
		fputs("'", out);
		return;
	}
	switch (o->offer) {
	case CLI_OFFER_FILE:
		fputs(" -r -F", out);
		break;
	case CLI_OFFER_COMMAND:
		fputs(" -x -a '(__fish_complete_command)'", out);
		break;
	case CLI_OFFER_HOST:
		fputs(" -x -a '(__fish_complete_user_at_hosts)'", out);
		break;
	case CLI_OFFER_DEVICE:
		fputs(" -x -a '(command ls /sys/class/infiniband 2>/dev/null)'", out);
		break;
	case CLI_OFFER_NOTHING:
		fputs(" -x", out);
		break;
	}
}

void cli_complete_fish(const struct cli_option *table, FILE *out)
{
	fputs("# fish completion for rcp, made from its option table\n", out);
	fputs("complete -c rcp -d Host -a '(__fish_complete_user_at_hosts):'\n", out);
	for (const struct cli_option *o = table; !cli_option_end(o); o++) {
		if (!o->ready)
			continue;
		fputs("complete -c rcp", out);
		if (o->letter)
			fprintf(out, " -s %c", o->letter);
		if (o->name)
			fprintf(out, " -l %s", o->name);
		if (o->argument)
			fish_argument(o, out);
		fputs(" -d '", out);
		put_quoted(o->help, "\\", "\\'", out);
		fputs("'\n", out);
	}
}
