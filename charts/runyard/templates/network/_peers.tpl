{{/* Peers and rules that NetworkPolicies have in common. docs/security.md has the table of who may reach whom. */}}

{{/* (dict "root" $ "component" "gateway") -> the pods of one part, as a peer. */}}
{{- define "runyard.peer.part" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .root.Release.Namespace }}
  podSelector:
    matchLabels:
      {{- include "runyard.selector" . | nindent 6 }}
{{- end }}

{{- define "runyard.peer.agentPods" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ include "runyard.agents.namespace" . }}
  podSelector:
    {{- include "runyard.selector.agentPods" . | nindent 4 }}
{{- end }}

{{/* What the operator puts on every pod that it makes. */}}
{{- define "runyard.selector.agentPods" -}}
matchLabels:
  app.kubernetes.io/managed-by: runyard
matchExpressions:
  - {key: runyard.dev/agent, operator: Exists}
{{- end }}

{{/* (list 443 6443) -> TCP ports of a rule. */}}
{{- define "runyard.ports" -}}
ports:
  {{- range . }}
  - {protocol: TCP, port: {{ int . }}}
  {{- end }}
{{- end }}

{{- define "runyard.egress.dns" -}}
{{- with .Values.networkPolicies.dns }}
- ports:
    {{- range .ports }}
    - {protocol: UDP, port: {{ int . }}}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "runyard.egress.apiServer" -}}
{{- with .Values.networkPolicies.apiServer }}
- {{- include "runyard.ports" .ports | nindent 2 }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "runyard.egress.database" -}}
{{- if .Values.postgres.enabled }}
- ports:
    - {protocol: TCP, port: 5432}
  to:
    {{- include "runyard.peer.part" (dict "root" . "component" "postgres") | nindent 4 }}
{{- else }}
{{- with .Values.networkPolicies.database }}
- {{- include "runyard.ports" .ports | nindent 2 }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "runyard.egress.agentPods" -}}
- ports:
    - {protocol: TCP, port: 8123}
  to:
    {{- include "runyard.peer.agentPods" . | nindent 4 }}
{{- end }}

{{/* Everything but the ranges that `except` names, in both address families. */}}
{{- define "runyard.egress.internet" -}}
- to:
    {{- $all := .Values.networkPolicies.agents.except }}
    {{- range $cidr := list "0.0.0.0/0" "::/0" }}
    - ipBlock:
        cidr: {{ $cidr | quote }}
        {{- $except := list }}
        {{- range $all }}
        {{- if eq (contains ":" .) (contains ":" $cidr) }}{{ $except = append $except . }}{{ end }}
        {{- end }}
        {{- with $except }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
    {{- end }}
{{- end }}

{{/* (dict "root" $ "component" "gateway" "name" … ["namespace" …]) -> head of a policy, up to its spec. */}}
{{- define "runyard.policy.head" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  labels:
    {{- include "runyard.labels" . | nindent 4 }}
{{- end }}

{{/* (dict "root" $ "component" "gateway" ["types" "Ingress"]) -> which pods of the release's namespace a policy is for. */}}
{{- define "runyard.policy.for" -}}
podSelector:
  matchLabels:
    {{- include "runyard.selector" . | nindent 4 }}
policyTypes: [{{ .types | default "Ingress, Egress" }}]
{{- end }}
