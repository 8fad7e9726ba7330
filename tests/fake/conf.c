/*
 * Personalities. RCP_FAKE_NICS describes the NICs of this process, separated by ';':
 *
 *   KIND[,KIND] [KEY=VALUE]...     one KIND a port: ib roce1 roce2 iwarp
 *
 *   imm=0|1      knows RDMA WRITE with immediate data (default: all but iwarp)
 *   guid=0       has no GUID: its GIDs have no interface identifier
 *   addr=0|1     its ports have IP addresses (default: all but ib, where 1 is IPoIB)
 *   lid=0        no subnet manager has been there
 *   net=N        subnet of its ports (default: the port's number)
 *   state=down|init|armed|active, state1=, state2=
 *   pkeys=HEX[/HEX]...   partition keys (default ffff)
 *   msg=BYTES sge=N inline=BYTES cqe=N wr=N memlock=BYTES   limits
 *   rto=MS       until retries are exceeded (default: as the QP's timeout and retry count say)
 *
 * RCP_FAKE: the fabric's name; processes with the same name see each other. Default: one's own.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool kinds_parse(struct fk_nic *nic, char *words)
{
	static const char *const names[] = {"", "ib", "roce1", "roce2", "iwarp"};
	char *save = NULL;

	for (char *w = strtok_r(words, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		struct fk_port *p = &nic->ports[nic->port_count];
		int kind = 4;

		while (kind && strcmp(w, names[kind]) != 0)
			kind--;
		if (!kind || nic->port_count == FK_PORTS)
			return false;
		p->kind = (enum fk_kind)kind;
		p->number = p->net = (uint8_t)++nic->port_count;
		p->nic = nic;
		p->state = IBV_PORT_ACTIVE;
		p->has_addr = kind != FK_IB;
		p->lid = kind == FK_IB;
		p->pkeys[0] = 0xffff;
		p->pkey_count = 1;
		nic->iwarp |= kind == FK_IWARP;
	}
	nic->imm = !nic->iwarp;
	return nic->port_count > 0;
}

static bool state_parse(const char *text, enum ibv_port_state *state)
{
	static const char *const names[] = {"", "down", "init", "armed", "active"};

	for (unsigned i = 1; i < 5; i++) {
		if (strcmp(text, names[i]) == 0) {
			*state = (enum ibv_port_state)i;
			return true;
		}
	}
	return false;
}

static bool pkeys_parse(struct fk_port *p, const char *text)
{
	char *end;

	for (p->pkey_count = 0; p->pkey_count < 4; text = end + 1) {
		p->pkeys[p->pkey_count++] = (uint16_t)strtoul(text, &end, 16);
		if (*end != '/')
			return !*end;
	}
	return false;
}

/* What each port has for itself. */
static bool port_option(struct fk_port *p, const char *key, const char *value)
{
	unsigned long n = strtoul(value, NULL, 0);
	char numbered[16];

	snprintf(numbered, sizeof(numbered), "state%u", p->number);
	if (!strcmp(key, "state") || !strcmp(key, numbered))
		return state_parse(value, &p->state);
	if (!strcmp(key, "pkeys"))
		return pkeys_parse(p, value);
	if (!strcmp(key, "addr"))
		p->has_addr = n != 0;
	else if (!strcmp(key, "lid"))
		p->lid = n && p->kind == FK_IB;
	else if (!strcmp(key, "net"))
		p->net = (uint8_t)n;
	else
		return !strncmp(key, "state", 5);
	return true;
}

static bool nic_option(struct fk_nic *nic, const char *key, const char *value)
{
	unsigned long n = strtoul(value, NULL, 0);
	bool known = true;

	if (!strcmp(key, "imm"))
		nic->imm = n != 0;
	else if (!strcmp(key, "guid"))
		nic->guid = n != 0;
	else if (!strcmp(key, "msg"))
		nic->max_msg = (uint32_t)n;
	else if (!strcmp(key, "sge"))
		nic->max_sge = (int)n;
	else if (!strcmp(key, "inline"))
		nic->max_inline = (uint32_t)n;
	else if (!strcmp(key, "cqe"))
		nic->max_cqe = (int)n;
	else if (!strcmp(key, "wr"))
		nic->max_wr = (int)n;
	else if (!strcmp(key, "memlock"))
		nic->memlock = n;
	else if (!strcmp(key, "rto"))
		nic->rto_ms = (unsigned)n;
	else
		known = false;
	for (unsigned i = 0; !known && i < nic->port_count; i++) {
		if (!port_option(&nic->ports[i], key, value))
			return false;
		if (i + 1 == nic->port_count)
			known = true;
	}
	return known && nic->max_sge >= 1 && nic->max_sge <= FK_SGES &&
	       nic->max_inline <= FK_INLINE;
}

static bool nic_parse(struct fk_nic *nic, char *text, unsigned index)
{
	char *save = NULL, *word = strtok_r(text, " \t\n", &save);

	*nic = (struct fk_nic){.guid = true,
			       .max_msg = UINT32_C(1) << 31,
			       .max_inline = 220,
			       .max_sge = FK_SGES,
			       .max_cqe = 1 << 20,
			       .max_wr = 16384,
			       .memlock = UINT64_MAX};
	snprintf(nic->device.name, sizeof(nic->device.name), "fake%u", index);
	snprintf(nic->device.dev_name, sizeof(nic->device.dev_name), "uverbs%u", index);
	snprintf(nic->device.ibdev_path, sizeof(nic->device.ibdev_path), "/nowhere/fake%u", index);
	if (!word || !kinds_parse(nic, word))
		return false;
	nic->device.node_type = nic->iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
	nic->device.transport_type = nic->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	while ((word = strtok_r(NULL, " \t\n", &save))) {
		char *value = strchr(word, '=');

		if (!value)
			return false;
		*value = 0;
		if (!nic_option(nic, word, value + 1))
			return false;
	}
	return true;
}

bool fk_conf_parse(const char *text, struct fk_nic *nics, unsigned *count)
{
	char *copy = strdup(text), *save = NULL;
	bool ok = copy != NULL;

	*count = 0;
	for (char *w = ok ? strtok_r(copy, ";", &save) : NULL; w && ok;
	     w = strtok_r(NULL, ";", &save)) {
		ok = *count < FK_NICS && nic_parse(&nics[*count], w, *count);
		(*count)++;
	}
	free(copy);
	return ok && *count > 0;
}
