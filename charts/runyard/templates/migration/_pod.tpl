{{/* The migration's pod: first the Secret of the agent pods, then schema, roles and the first API key. */}}
{{- define "runyard.migration.pod" -}}
metadata:
  {{- include "runyard.pod.metadata" (dict "root" . "component" "migration" "part" .Values.jobs) | nindent 2 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "runyard.migration.name" . }}
  # Only the first container talks to the API server; see the volume `api`.
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- include "runyard.pod.security" . | nindent 4 }}
  {{- include "runyard.pod.placement" (dict "root" . "part" .Values.jobs) | nindent 2 }}
  initContainers:
    - name: agent-database
      image: {{ include "runyard.image" (dict "root" . "name" "operator") }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      command: [python, -m, runyard_kube.bootstrap, agent-database]
      args:
        - --namespace={{ include "runyard.agents.namespace" . }}
        - --secret={{ include "runyard.agentDatabase.secret" . }}
      env:
        {{- include "runyard.databaseUrl" (dict "root" . "variable" "RUNYARD_RUNTIME_URL" "principal" "runtime") | nindent 8 }}
      securityContext:
        {{- include "runyard.container.security" . | nindent 8 }}
      resources:
        {{- toYaml .Values.jobs.resources | nindent 8 }}
      volumeMounts:
        - {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  containers:
    - name: migration
      image: {{ include "runyard.image" (dict "root" . "name" "runtime") }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      command: [python, -m, runyard_store.prepare]
      env:
        {{- include "runyard.databaseUrl" (dict "root" . "variable" "RUNYARD_DATABASE_URL" "principal" "owner") | nindent 8 }}
        {{- range $principal := list "gateway" "operator" "runtime" }}
        {{- include "runyard.databaseUrl" (dict "root" $ "variable" (printf "RUNYARD_%s_URL" (upper $principal)) "principal" $principal) | nindent 8 }}
        {{- end }}
        - name: RUNYARD_FIRST_KEY_FILE
          value: /etc/runyard/api-key/key
        - name: RUNYARD_WAIT_SECONDS
          value: {{ .Values.jobs.databaseWaitSeconds | quote }}
      securityContext:
        {{- include "runyard.container.security" . | nindent 8 }}
      resources:
        {{- toYaml .Values.jobs.resources | nindent 8 }}
      volumeMounts:
        - {name: api-key, mountPath: /etc/runyard/api-key, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: api-key
      secret:
        secretName: {{ include "runyard.apiKey.secret" . }}
        defaultMode: 0440
    - name: api
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap:
              name: kube-root-ca.crt
              items: [{key: ca.crt, path: ca.crt}]
          - downwardAPI:
              items:
                - path: namespace
                  fieldRef: {fieldPath: metadata.namespace}
    - name: tmp
      emptyDir: {}
{{- end }}
